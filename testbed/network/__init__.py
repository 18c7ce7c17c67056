"""A network in the kernel: bring-up, read-back, faults, status, removal."""
