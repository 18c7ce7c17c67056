"""Shortest paths by breadth-first search, as link-state daemons compute them.

`adjacency` maps each node to its neighbours and is symmetric; Topology.adjacency is one.  In a
server-centric network a hop leads from server to server, through a crossbar or not (CCRDN, section
2).  Of several shortest paths, route() and next_hop() take the neighbour with the lowest number at
each node, so that they agree.

distances_within() and what follows it search one X(b) of a CCRDN, over live channels, for routing
by link state of a scope.  With b = k the scope is the whole network; the search computes
neighbours instead of storing them. Servers are numbered within the X(b); channels as in
path_tables.py, from its first server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from typing import TYPE_CHECKING

from weft.topologies.recursive.ccrdn import Ccrdn, common_level, peer

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology


Adjacency = Mapping[int, Sequence[int]]


def distances(adjacency: Adjacency, src: int) -> dict[int, int]:
    """Return the hops from `src` to each node within reach, itself included, nearest first."""
    hops = {src: 0}
    frontier = [src]
    while frontier:
        beyond = []
        for node in frontier:
            for neighbour in adjacency[node]:
                if neighbour not in hops:
                    hops[neighbour] = hops[node] + 1
                    beyond.append(neighbour)
        frontier = beyond
    return hops


def next_hops(adjacency: Adjacency, src: int) -> dict[int, tuple[int, ...]]:
    """Return the neighbours of `src` on shortest paths to each other node within reach, sorted."""
    far = distances(adjacency, src)
    first: dict[int, frozenset[int]] = {src: frozenset()}
    for node, hops in far.items():
        if hops == 1:
            first[node] = frozenset({node})
        elif hops > 1:
            first[node] = frozenset().union(
                *(first[near] for near in adjacency[node] if far[near] == hops - 1)
            )
    return {node: tuple(sorted(neighbours)) for node, neighbours in first.items() if node != src}


def route(adjacency: Adjacency, src: int, dst: int) -> list[int]:
    """Return one shortest path from `src` to `dst`, both included; empty without a path."""
    return next(paths(adjacency, src, dst), [])


def paths(adjacency: Adjacency, src: int, dst: int) -> Iterator[list[int]]:
    """Yield the shortest paths from `src` to `dst`, in lexicographic order of the nodes."""
    remaining = distances(adjacency, dst)
    if src in remaining:
        yield from _continued(adjacency, remaining, [src])


def _continued(
    adjacency: Adjacency, remaining: Mapping[int, int], path: list[int]
) -> Iterator[list[int]]:
    """Yield the shortest paths that begin with `path`; `remaining`: hops from each node."""
    if not remaining[path[-1]]:
        yield path
    for node in sorted(adjacency[path[-1]]):
        if remaining[node] == remaining[path[-1]] - 1:
            yield from _continued(adjacency, remaining, [*path, node])


UNREACHED = -1


def distances_within(
    rule: int,
    t: Sequence[int],
    b: int,
    down: Sequence[int],
    src: int,
    distance: MutableSequence[int],
    parent: MutableSequence[int],
    queue: MutableSequence[int],
) -> int:
    """Fill `distance` with hops from `src` to each server, `parent` with the server before each.

    Args:
        rule: as `t`, see topologies/recursive/ccrdn.py.
        t: servers of an X(0), X(1), and so on.
        b: level of the scope.
        down: 1 for each dead channel; empty if all are live.
        src: first server.
        distance: t[b] numbers; UNREACHED for servers without a path.
        parent: t[b] numbers, or none.
        queue: t[b] numbers of work space.

    Returns:
        Number of servers that are reached.
    """
    ports, n = len(t) + 1, t[0]
    forget(distance)
    forget(parent)
    distance[src] = 0
    queue[0] = src << 1
    head, tail = 0, 1
    while head < tail:
        u, by_crossbar = queue[head] >> 1, queue[head] & 1
        head += 1
        if not by_crossbar and is_live(down, u * ports):  # else all servers there are reached
            for v in range(u // n * n, u // n * n + n):
                if is_live(down, (v + 1) * ports - 1):
                    tail = reach(distance, parent, queue, tail, u, v, 1)
        for level in range(1, b + 1):
            v = peer(rule, t, u, level)
            if v >= 0 and is_live(down, u * ports + level):
                tail = reach(distance, parent, queue, tail, u, v, 0)
    return tail


def forget(numbers: MutableSequence[int]) -> None:
    """Set all `numbers` to UNREACHED."""
    for index in range(len(numbers)):
        numbers[index] = UNREACHED


def is_live(down: Sequence[int], channel: int) -> bool:
    """Return True unless `down` has `channel` as dead."""
    return len(down) == 0 or not down[channel]


def reach(
    distance: MutableSequence[int],
    parent: MutableSequence[int],
    queue: MutableSequence[int],
    tail: int,
    u: int,
    v: int,
    by_crossbar: int,
) -> int:
    """Enter server `v`, reached from `u`, into the queue of `tail` servers, unless it was before.

    Returns:
        The new length of the queue.
    """
    if distance[v] != UNREACHED:
        return tail
    distance[v] = distance[u] + 1
    queue[tail] = v << 1 | by_crossbar
    if len(parent):
        parent[v] = u
    return tail + 1


def first_hop(parent: Sequence[int], src: int, dst: int) -> int:
    """Return the server after `src` on a shortest path to `dst`; -1 without a path.

    Args:
        parent: of each server, as distances_within() from `src` fills it.
        src: first server.
        dst: last server.
    """
    if dst != src and parent[dst] == UNREACHED:
        return -1
    while dst != src and parent[dst] != src:
        dst = parent[dst]
    return dst


def dead_channels(topology: Topology, network: Ccrdn) -> bytes:
    """Return 1 for each channel of `network` whose link has failed in `topology`, else 0."""
    ports = network.k + 2
    down = bytearray(topology.servers * ports)
    for link in topology.failed_links():
        a, _, b, _ = topology.ends(link)
        if topology.is_crossbar(b):
            down[a * ports] = down[(a + 1) * ports - 1] = 1
        else:
            level = common_level(network.t, a, b)
            down[a * ports + level] = down[b * ports + level] = 1
    return bytes(down)
