"""What every scheme builds on: the contract of a state machine, actions and events, the scheme
registry, messages on the wire."""
