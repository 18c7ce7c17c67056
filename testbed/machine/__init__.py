"""The machine: what its kernel can do, and what measured a result."""
