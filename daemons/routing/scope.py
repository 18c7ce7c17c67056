"""Shortest paths within one X(b) of a network, around its dead channels: what link state within a
scope gives.

With b = k the scope is the whole network, and this is breadth-first search on a network that is
nowhere stored. Servers are numbered within the X(b), channels as in daemons/routing/path_tables.py
from its first server.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import TYPE_CHECKING

from weft.topologies.recursive.ccrdn import Ccrdn, common_level, peer

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

UNREACHED = -1


def distances(
    rule: int,
    t: Sequence[int],
    b: int,
    down: Sequence[int],
    src: int,
    distance: MutableSequence[int],
    parent: MutableSequence[int],
    queue: MutableSequence[int],
) -> int:
    """Fill `distance` with hops from `src` to each of the t[b] servers and `parent` with the last
    server before each, or UNREACHED; return how many servers are reached.

    down: 1 for each dead channel; empty if there is none.
    distance, parent, queue: room for t[b] numbers each; none for `parent` if nobody asks.
    """
    n, ports, alive = t[0], len(t) + 1, len(down) == 0
    for server in range(t[b]):
        distance[server] = UNREACHED
    for server in range(len(parent)):
        parent[server] = UNREACHED
    distance[src] = 0
    queue[0] = src << 1
    head, tail = 0, 1
    while head < tail:
        u, by_crossbar = queue[head] >> 1, queue[head] & 1
        head += 1
        if not by_crossbar and (alive or not down[u * ports]):  # else everybody there is reached
            for v in range(u - u % n, u - u % n + n):
                if distance[v] == UNREACHED and (alive or not down[(v + 1) * ports - 1]):
                    distance[v] = distance[u] + 1
                    queue[tail] = v << 1 | 1
                    tail += 1
                    if len(parent):
                        parent[v] = u
        for level in range(1, b + 1):
            v = peer(rule, t, u, level)
            if v >= 0 and distance[v] == UNREACHED and (alive or not down[u * ports + level]):
                distance[v] = distance[u] + 1
                queue[tail] = v << 1
                tail += 1
                if len(parent):
                    parent[v] = u
    return tail


def first_hop(parent: Sequence[int], src: int, dst: int) -> int:
    """The server after `src` on a shortest path to `dst`, given `parent` of a search from `src`; -1
    if not reached."""
    if dst != src and parent[dst] == UNREACHED:
        return -1
    while dst != src and parent[dst] != src:
        dst = parent[dst]
    return dst


def dead_channels(topology: Topology, network: Ccrdn) -> bytes:
    """1 for each channel of the whole network whose link has failed in `topology`, which is that
    network."""
    ports = network.k + 2
    down = bytearray(topology.servers * ports)
    for a, _, b, _ in topology.links[topology.failed].tolist():
        if topology.is_crossbar(b):
            down[a * ports] = down[(a + 1) * ports - 1] = 1
        else:
            level = common_level(network.t, a, b)
            down[a * ports + level] = down[b * ports + level] = 1
    return bytes(down)
