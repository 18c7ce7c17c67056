"""Shortest paths over live links, known by link state."""
