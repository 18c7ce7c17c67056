"""Figures of results and drawings of networks."""
