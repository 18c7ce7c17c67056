"""Shortest paths by breadth-first search: the yard-stick of every other scheme, and what a
link-state daemon computes.

`adjacency` maps each node to its neighbours and is symmetric; Topology.adjacency is one.  A hop is
one step in it: from server to server in a server-centric network, whether through a crossbar or not
(CCRDN, section 2).  Where several paths are shortest, the single ones given here take the neighbour
with the lowest number at every node, so that next_hop() at each node of route() gives the next node
of that route.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

Adjacency = Mapping[int, Sequence[int]]


def distances(adjacency: Adjacency, src: int) -> dict[int, int]:
    """Hops from `src` to every node that it can reach, itself included, nearest first."""
    found = {src: 0}
    frontier = [src]
    while frontier:
        further = []
        for node in frontier:
            for other in adjacency[node]:
                if other not in found:
                    found[other] = found[node] + 1
                    further.append(other)
        frontier = further
    return found


def next_hops(adjacency: Adjacency, src: int) -> dict[int, tuple[int, ...]]:
    """For every other node that `src` can reach, all its neighbours on shortest paths there, in
    order of number."""
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


def next_hop(adjacency: Adjacency, cur: int, dst: int) -> int | None:
    """The node after `cur` on route(cur, dst), None if there is no path; cur != dst."""
    path = route(adjacency, cur, dst)
    return path[1] if path else None


def route(adjacency: Adjacency, src: int, dst: int) -> list[int]:
    """The nodes of one shortest path from `src` to `dst`, both included; empty if there is none."""
    return next(paths(adjacency, src, dst), [])


def paths(adjacency: Adjacency, src: int, dst: int) -> Iterator[list[int]]:
    """Every shortest path from `src` to `dst`, in lexicographic order of the nodes."""
    left = distances(adjacency, dst)
    if src in left:
        yield from _continued(adjacency, left, [src])


def _continued(
    adjacency: Adjacency, left: Mapping[int, int], path: list[int]
) -> Iterator[list[int]]:
    """The ways to finish `path`, `left` being the hops that are left from each node."""
    if not left[path[-1]]:
        yield path
    for node in sorted(adjacency[path[-1]]):
        if left[node] == left[path[-1]] - 1:
            yield from _continued(adjacency, left, [*path, node])
