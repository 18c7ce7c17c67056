"""One network over several machines: placement, agents, and the links between machines."""
