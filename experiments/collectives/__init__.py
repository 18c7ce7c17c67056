"""Collective operations and traces of training jobs over networks and routing schemes."""
