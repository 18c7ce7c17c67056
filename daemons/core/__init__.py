"""Contract of state machines, actions and events, the scheme registry, and wire formats."""
