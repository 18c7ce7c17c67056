"""DAR: distributed adaptive routing of flows in Clos networks (Zahavi et al., ANCS 2012)."""
