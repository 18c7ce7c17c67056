"""The contract between a routing protocol and what carries it, the schemes by name, messages as bytes, timers."""
