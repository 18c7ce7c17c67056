"""Schemes of a switch fabric's data plane, which choose a port for each packet or flow."""
