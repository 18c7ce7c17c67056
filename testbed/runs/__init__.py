"""A run on this machine: its name and journal, its private files, its processes."""
