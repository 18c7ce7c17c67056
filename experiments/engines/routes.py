"""Paths that a routing scheme predicts on the graph, with links failed or not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import permutations

import numpy as np

from weft.daemons.core import registry
from weft.daemons.core.scheme import RoutedPath
from weft.daemons.routing import shortest
from weft.topologies.core.failures import fail_links
from weft.topologies.core.grammar import parse, unparse
from weft.topologies.core.topology import Topology

Pair = tuple[int, int]
BUDGETS = ("probes_per_s", "urgent_per_s", "wakes_per_s")
# default schemes of sweeps: those that run on every recursively-defined network
EVERYWHERE = ("dr", "pr-gp0", "pr-gpi", "pr-gpe", "dfr", "bfs")
PairSet = set[tuple[int, int]]  # ordered: source, destination


def asking(routing: str, per_s: int) -> str:
    """Return `routing` with a budget of `per_s` path probes a second for each source.

    Unchanged if `per_s` is 0 or the scheme has no such budgets; a budget in `routing` stays.
    """
    name, texts = parse(routing)
    parameters = registry.scheme(routing)[0].parameters
    budgets = {key: str(per_s) for key in BUDGETS if key in parameters and per_s}
    return unparse(name, {**budgets, **texts})


def some_pairs(servers: int, most: int, generator: np.random.Generator) -> list[Pair]:
    """Return at most `most` random unordered pairs, each in both directions.

    Neighbours in the list begin at different servers.
    """
    half = [(src, src + step) for step in range(1, servers) for src in range(servers - step)]
    drawn = [half[i] for i in generator.permutation(len(half))[:most].tolist()]
    return [*drawn, *((dst, src) for src, dst in drawn)]


def lengths(topology: Topology, routing: str, pairs: Iterable[Pair]) -> dict[Pair, int] | None:
    """Return the hops of those of `pairs` that `routing` connects over healthy links.

    None for a scheme whose paths depend on more than the healthy links.
    """
    scheme, options = registry.scheme(routing)
    if not scheme.fixed_path:
        return None
    paths = {pair: scheme.path(topology, options, *pair) for pair in pairs}
    return {pair: len(path[0].nodes) - 1 for pair, path in paths.items() if path}


def connects(topology: Topology, routing: str, pairs: Iterable[Pair]) -> set[Pair]:
    """Return those of `pairs` that `routing` connects once daemons know which links are dead."""
    scheme, options = registry.scheme(routing)
    if scheme.connects:
        return {pair for pair in pairs if scheme.connects(topology, options, *pair)}
    ordered = sorted(pairs)
    distances = {
        src: shortest.distances(topology.adjacency, src) for src in {src for src, _ in ordered}
    }
    return {(src, dst) for src, dst in ordered if dst in distances[src]}


def both_ways(pairs: Iterable[Pair]) -> set[Pair]:
    """Return those of `pairs` whose reverse is among them: a ping needs both directions."""
    connected = set(pairs)
    return {(src, dst) for src, dst in connected if (dst, src) in connected}


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
