"""A node's routing daemon as a process: loop, sockets, counters, sealed messages, supervision."""
