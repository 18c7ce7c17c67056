"""The contract between a state machine and its runtime, the scheme registry, messages as bytes, timers."""
