"""Mininet's interface: Net, its nodes, links, topologies and command line."""
