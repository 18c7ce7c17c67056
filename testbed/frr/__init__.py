"""FRR, the routing suite, on the routers of a network."""
