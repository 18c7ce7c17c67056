"""Routing daemons: their loop, sockets, counters, and what carries a state machine."""
