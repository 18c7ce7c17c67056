"""Shortest paths over the links that live, known by link state."""
