"""Shortest paths by breadth-first search, as link-state daemons compute them.

`adjacency` maps each node to its neighbours and is symmetric; Topology.adjacency is one.  In a
server-centric network a hop leads from server to server, through a crossbar or not (CCRDN, section
2).  Of several shortest paths, route() and next_hop() take the neighbour with the lowest number at
each node, so that they agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

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
