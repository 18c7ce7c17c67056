"""Addresses rewritten at servers and in transit: what PR, DFR and TAR ask of the data plane."""
