"""The first networks that a user runs, and the failures that they survive."""
