"""Dimensional routing, and routes that the topology alone gives."""
