"""A network as data before it is in the kernel, and what programs its switches."""
