"""The kernel without weft: netlink, namespaces, interfaces, tc, nf_tables, libbpf, the clock."""
