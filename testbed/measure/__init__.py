"""Measurements: ping, traceroute, outages, counters, queues, reordering, load, fidelity."""
