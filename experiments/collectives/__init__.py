"""Collective operations, traces of training jobs, and flows over networks and routing schemes."""
