"""Paths of a routing scheme on the graph, with links failed or not."""

from __future__ import annotations

from collections.abc import Sequence

from weft.daemons.core import registry
from weft.daemons.core.scheme import RoutedPath
from weft.topologies.core.failures import fail_links
from weft.topologies.core.topology import Topology

PairSet = set[tuple[int, int]]  # ordered: source, destination


def find(
    routing: str, topology: Topology, src: int, dst: int, failed: Sequence[int] = ()
) -> Sequence[RoutedPath]:
    """Return the paths from server `src` to server `dst` under `routing`, the likeliest first.

    Links `failed` are dead.

    Raises:
        ValueError: there is no such scheme, it does not suit the topology, or an end is no server.
    """
    scheme, options = registry.checked(topology, routing)
    for node in (src, dst):
        if node >= topology.servers:
            raise ValueError(
                f"{topology.naming.name(node)} is a switch; paths lead from server to server"
            )
    return scheme.path(fail_links(topology, failed) if failed else topology, options, src, dst)


def lost_pairs(routing: str, topology: Topology) -> PairSet:
    """Return the ordered pairs of servers without a path over the live links of `topology`."""
    scheme, options = registry.checked(topology, routing)
    servers = range(topology.servers)
    return {
        (src, dst)
        for src in servers
        for dst in servers
        if src != dst and not scheme.path(topology, options, src, dst)
    }
