"""Instruments: ping, traceroute, outages, queues, reordering, port counters, host load, fidelity."""
