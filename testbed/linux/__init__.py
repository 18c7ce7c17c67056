"""The kernel as it is, without weft: netlink, namespaces, queueing disciplines, nft, libbpf,
processes, the clock.
"""
