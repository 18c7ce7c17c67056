"""The purified transport (daemons/transport) on Linux: its endpoints in C, and messages between hosts by it."""
