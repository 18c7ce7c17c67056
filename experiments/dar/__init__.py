"""DAR: distributed adaptive routing on Clos networks, by models and on the kernel."""
