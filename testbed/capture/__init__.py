"""Packets of a run's links in files, and what daemons say in them."""
