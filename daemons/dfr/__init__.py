"""Fault-tolerant routing, DFR (CCRDN 4.2.1)."""
