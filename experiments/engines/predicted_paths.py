"""Pairs of servers that a scheme connects over healthy links, as its registration predicts."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from weft.daemons.core import registry
from weft.daemons.routing import shortest
from weft.topologies.core.grammar import parse, unparse
from weft.topologies.core.topology import Topology

Pair = tuple[int, int]
BUDGETS = ("probes_per_s", "urgent_per_s", "wakes_per_s")
# default schemes of sweeps: those that run on every recursively-defined network
EVERYWHERE = ("dr", "pr-gp0", "pr-gpi", "pr-gpe", "dfr", "bfs")


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
