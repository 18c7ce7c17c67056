"""The data plane: choice of ports at switches, and addresses rewritten at servers, by eBPF and nf_tables."""
