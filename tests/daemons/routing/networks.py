"""Whole small networks, and slow and obvious ways to know them."""

from __future__ import annotations

import random
from collections import deque
from functools import cache
from itertools import pairwise

from weft.topologies.recursive import dcell as dcell
from weft.topologies.recursive.ccrdn import BETA_DCELL, DCELL, FAMILY, FICONN, Ccrdn

DELTA_DCELL = next(rule for rule, name in FAMILY.items() if name == "delta-dcell")
TWO_LEVELS = [Ccrdn(DCELL, 3, 2), Ccrdn(BETA_DCELL, 3, 2), Ccrdn(FICONN, 4, 2), Ccrdn(FICONN, 6, 2)]
TWO_LEVELS += [Ccrdn(DELTA_DCELL, 4, 2)]
THREE_LEVELS = [
    Ccrdn(DCELL, 3, 3),
    Ccrdn(BETA_DCELL, 3, 3),
    Ccrdn(FICONN, 4, 3),
    Ccrdn(FICONN, 8, 3),
]


def title(network: Ccrdn) -> str:
    return f"{FAMILY[network.rule]}-{network.n}-{network.k}"


def pairs(network: Ccrdn, most: int, seed: int = 1) -> list[tuple[int, int]]:
    """All pairs of different servers, or `most` of them drawn at random."""
    servers = network.t[-1]
    if servers * (servers - 1) <= most:
        return [(src, dst) for src in range(servers) for dst in range(servers) if src != dst]
    draw = random.Random(seed)
    return [tuple(draw.sample(range(servers), 2)) for _ in range(most)]  # type: ignore[misc]


@cache
def beside(network: Ccrdn, server: int) -> dict[int, list[int]]:
    """The servers one hop from `server`, each with the channels of that hop."""
    ports = network.k + 2
    first = server - server % network.n
    neighbours = {
        v: [server * ports, v * ports + network.k + 1]
        for v in range(first, first + network.n)
        if v != server
    }
    return neighbours | {
        network.peer(server, level): [server * ports + level] for level in network.levels(server)
    }


def neighbours(network: Ccrdn, server: int, down: set[int] = frozenset()) -> dict[int, list[int]]:  # type: ignore[assignment]
    """As beside(), where none of the channels is in `down`."""
    found = beside(network, server)
    return {v: hop for v, hop in found.items() if down.isdisjoint(hop)} if down else found


def channels(network: Ccrdn, route: list[int]) -> list[int]:
    """The channels of `route`; KeyError if it does not follow links."""
    return [channel for u, v in pairwise(route) for channel in neighbours(network, u)[v]]


def distances(network: Ccrdn, src: int, down: set[int] = frozenset()) -> dict[int, int]:  # type: ignore[assignment]
    """Hops from `src` to each server that is reached."""
    hops, queue = {src: 0}, deque([src])
    while queue:
        u = queue.popleft()
        for v in neighbours(network, u, down):
            if v not in hops:
                hops[v] = hops[u] + 1
                queue.append(v)
    return hops


def dead_links(network: Ccrdn, fraction: float, seed: int) -> set[int]:
    """Both channels of each of a fraction of the links, drawn at random."""
    ports, draw = network.k + 2, random.Random(seed)
    links = [{server * ports, server * ports + network.k + 1} for server in range(network.t[-1])]
    for server in range(network.t[-1]):
        links += [
            {server * ports + level, network.peer(server, level) * ports + level}
            for level in network.levels(server)
            if server < network.peer(server, level)
        ]
    return set().union(*draw.sample(links, round(fraction * len(links))))
