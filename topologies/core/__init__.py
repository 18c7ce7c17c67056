"""Parts of every network: arrays, names and addresses, families, failed parts."""
