"""The paths that a routing scheme gives a pair of servers on the graph, links failed or not."""

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
    """The paths by which packets go from server `src` to server `dst` under the scheme `routing`
    with the links `failed` dead, the likeliest first; none if it finds none.

    ValueError if there is no such scheme, or it does not go with the topology, or an end is no
    server.
    """
    found, options = registry.checked(topology, routing)
    for node in (src, dst):
        if node >= topology.servers:
            raise ValueError(
                f"{topology.naming.name(node)} is a switch; paths lead from server to server"
            )
    return found.path(fail_links(topology, failed) if failed else topology, options, src, dst)


def lost_pairs(routing: str, topology: Topology) -> PairSet:
    """Every ordered pair of servers for which `routing` finds no path over the live links of
    `topology`.
    """
    found, options = registry.checked(topology, routing)
    servers = range(topology.servers)
    return {
        (src, dst)
        for src in servers
        for dst in servers
        if src != dst and not found.path(topology, options, src, dst)
    }
