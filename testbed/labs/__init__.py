"""Networks of a user's own as one file: what is wired to what, what links carry, which scheme, which commands."""
