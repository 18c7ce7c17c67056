"""The routers of switch networks as a graph: how many paths there are, and how much traffic they carry."""
