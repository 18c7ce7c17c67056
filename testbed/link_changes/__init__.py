"""Changing links of a network that runs: their rate, delay and loss, and what becomes of control packets on them."""
