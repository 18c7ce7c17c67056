"""Hosts and learning switches that are made one after the other, as Mininet makes them."""
