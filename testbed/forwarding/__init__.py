"""The data plane: choice of ports at switches, and of layers at hosts, by eBPF."""
