"""Schemes of a fabric's data plane, which choose a port for each packet, flowlet or flow."""
