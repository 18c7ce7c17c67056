"""The kernel: netlink, namespaces, queueing disciplines, routes, nf_tables, eBPF objects, ICMP."""
