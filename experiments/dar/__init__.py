"""DAR: convergence of distributed adaptive routing on Clos networks, simulated and by the paper's models."""
