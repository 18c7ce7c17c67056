"""Other software on the same network: Mininet and FRR."""
