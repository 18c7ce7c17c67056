"""Measurements: ping, traceroute, outages, port counters, queues, reordering, host load,
fidelity.
"""
