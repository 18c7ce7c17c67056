"""A network in the kernel: made, read back, broken and restored, taken down."""
