"""The machine: what its kernel can do, what it is, and a whole kernel under User-Mode Linux."""
