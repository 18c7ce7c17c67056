"""Routing daemons as processes: loop, supervisor, sockets, counters, control."""
