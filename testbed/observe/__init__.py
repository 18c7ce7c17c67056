"""A run as it goes on: its event stream, captures of its packets, changes asked for by a viewer."""
