"""Processes that root starts and waits for, and files that are theirs alone."""
