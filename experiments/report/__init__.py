"""Figures, claims and comparisons of results, and drawings of networks."""
