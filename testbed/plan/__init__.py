"""A network as data before it is in the kernel: its plan, its run, and what instruments need of it."""
