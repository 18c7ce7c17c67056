"""Experiments, their sweeps on this machine or a cluster, and the store of results."""
