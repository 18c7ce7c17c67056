"""A network in the kernel: bring-up, read-back, faults, changed links, another scheme, removal."""
