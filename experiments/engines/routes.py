"""Paths of a routing scheme on the graph, with links failed or not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from weft.daemons.core import registry
from weft.daemons.core.scheme import RoutedPath
from weft.experiments.engines.predicted_paths import connects
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
    """Return the ordered pairs of servers that `routing` does not connect over healthy links.

    This is about a packet that the network routes.  `Scheme.path` has also the paths that hosts
    choose, by a layer for example; a pair may have one of these alone.
    """
    registry.checked(topology, routing)
    pairs = set(permutations(range(topology.servers), 2))
    return pairs - connects(topology, routing, pairs)


def prediction(routing: str, topology: Topology, src: int, dst: int) -> str:
    """Return in words whether packets of a pair arrive, and their likeliest path."""
    arrives = connects(topology, routing, [(src, dst)])
    words = "arrives" if arrives else "is lost"
    paths = find(routing, topology, src, dst)
    if not paths:
        return words
    return f"{words}, path {' '.join(map(topology.naming.name, paths[0].nodes))}"
