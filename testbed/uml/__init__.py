"""User-Mode Linux: a command on a kernel of its own, whose clock can be virtual."""
