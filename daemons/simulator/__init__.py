"""Fabric engine: the state machines of a whole network on wires in memory, in simulated time."""
