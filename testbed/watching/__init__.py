"""A run as it goes on: what its links carry, and what changes at links, routes and daemons, as a stream of events."""
