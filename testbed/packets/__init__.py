"""Simulated packets: the data plane's C on simulated links, with TCP or the purified transport."""
