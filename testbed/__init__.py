"""Linux: the only folder that touches the system."""
