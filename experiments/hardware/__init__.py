"""Experiments beside a Slim Fly of hardware: Blach et al., NSDI 2024."""
