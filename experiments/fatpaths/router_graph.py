"""Routers of a switch network and links between them, as arrays, and the diversity of their paths.

Compiled code reads the arrays.  Routers are numbered from 0 here: router i is the node `servers` +
i of its Topology.  Every link is two arcs, one each way; the arcs that leave router u are start[u]
.. start[u + 1] - 1, in order of the router that they lead to.

Path diversity is that of FatPaths, section IV-B.  CDP, the count of disjoint paths c_l(A, B), is
found greedily and shortest first: a breadth-first search from A takes the first path of at most l
links to B, its links are deleted in both directions, and so on until there is none.  There are no
residual edges, so the count may be less than the least cut; FatPaths speaks of a variant of Ford
and Fulkerson's algorithm "with various pruning heuristics", and only the greedy count gives the
values of its table IV.

PI, path interference: I^l(ac, bd) = c_l({a,c}, {b}) + c_l({a,c}, {d}) - c_l({a,c}, {b,d}).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from weft.daemons.core.compiled import allocates_nothing, compiled
from weft.experiments.engines.arrays import Ints
from weft.experiments.report.statistics import normal_half_width
from weft.topologies.core.topology import Topology, require_one_plane

UNREACHED = 127  # a distance: no path


@dataclass(frozen=True, eq=False)
class RouterGraph:
    """Routers, and two arcs for each link between them.

    start: first arc of each router, shape (routers + 1,).
    peer: router that each arc leads to.
    edge: link of each arc, which both of its arcs share.
    hosts: number of hosts of each router.
    """

    start: Ints
    peer: Ints
    edge: Ints
    hosts: Ints

    @classmethod
    def of(cls, topology: Topology) -> RouterGraph:
        """Return the graph of the routers of `topology`, without failed links.

        Raises:
            ValueError: its servers forward.
        """
        if topology.server_centric:
            raise ValueError(f"{topology.spec} has no routers, its servers forward")
        require_one_plane("the graph of routers", topology)
        live = topology.links[~topology.failed]
        hosts = np.bincount(
            live[live[:, 0] < topology.servers, 2] - topology.servers, minlength=topology.switches
        )
        ends = live[live[:, 0] >= topology.servers][:, [0, 2]] - topology.servers
        return cls.from_edges(ends, hosts)

    @classmethod
    def from_edges(cls, ends: Ints, hosts: Ints) -> RouterGraph:
        """The graph of the links `ends`, shape (links, 2), numbered in the order of their ends."""
        low, high = np.minimum(*ends.T), np.maximum(*ends.T)
        order = np.argsort(low * len(hosts) + high)
        ends = np.stack([low[order], high[order]], axis=1)
        near, far = np.concatenate([ends, ends[:, ::-1]]).T
        order = np.argsort(near * len(hosts) + far)
        number = np.tile(np.arange(len(ends)), 2)
        return cls(
            start=np.searchsorted(near[order], np.arange(len(hosts) + 1)),
            peer=far[order].copy(),
            edge=number[order],
            hosts=hosts.astype(np.int64),
        )

    @property
    def routers(self) -> int:
        return len(self.hosts)

    @property
    def edges(self) -> int:
        return len(self.peer) // 2

    @cached_property
    def tail(self) -> Ints:
        """The router that each arc leaves."""
        return np.repeat(np.arange(self.routers), np.diff(self.start))

    @property
    def network_radix(self) -> int:
        """k': the links to other routers of a router with hosts, the most if they differ."""
        return int(np.diff(self.start)[self.hosts > 0].max())

    @cached_property
    def endpoints(self) -> Ints:
        """The routers with hosts: between them leads what is measured."""
        return np.flatnonzero(self.hosts)

    @cached_property
    def _shortest(self) -> tuple[NDArray[np.int8], Ints]:
        distance = np.full((self.routers, self.routers), UNREACHED, dtype=np.int8)
        count = np.zeros((self.routers, self.routers), dtype=np.int64)
        compiled(shortest_paths)(self.start, self.peer, distance, count)
        return distance, count

    @property
    def distance(self) -> NDArray[np.int8]:
        """Links on a shortest path between any two routers, UNREACHED if there is none."""
        return self._shortest[0]

    @property
    def path_count(self) -> Ints:
        """Number of shortest paths between any two routers; 1 from a router to itself."""
        return self._shortest[1]

    @cached_property
    def diameter(self) -> int:
        """D, between routers with hosts; ValueError if some cannot reach others."""
        among = self.distance[np.ix_(self.endpoints, self.endpoints)]
        if among.max() == UNREACHED:
            raise ValueError("the routers are not connected")
        return int(among.max())

    @cached_property
    def mean_distance(self) -> float:
        """d: the mean over ordered pairs of different routers with hosts."""
        among = self.distance[np.ix_(self.endpoints, self.endpoints)]
        return float(among.sum(dtype=np.int64)) / (len(among) * (len(among) - 1))


def shortest_paths(start: Ints, peer: Ints, distance: NDArray[np.int8], count: Ints) -> None:
    """Compute distances and numbers of shortest paths between all routers, breadth first.

    Where fewer routers are left than were reached last, those that are left look for them.

    distance, count: filled, shape (routers, routers); distance holds UNREACHED everywhere, count 0.
    """
    routers = len(start) - 1
    queue = np.empty(routers + 1, np.int64)
    for src in range(routers):
        far, ways = distance[src], count[src]
        far[src], ways[src], queue[0] = 0, 1, src
        begin, end, hops = 0, 1, 1
        while begin < end < routers:
            tail = end
            if routers - end < end - begin:
                for v in range(routers):
                    if far[v] == UNREACHED:
                        many = 0
                        for arc in range(start[v], start[v + 1]):
                            many += ways[peer[arc]] * (far[peer[arc]] == hops - 1)
                        if many:
                            far[v], ways[v], queue[tail] = hops, many, v
                            tail += 1
            else:
                for u in queue[begin:end]:
                    many = ways[u]  # a store to the arrays would have the compiler read this again
                    for arc in range(start[u], start[u + 1]):
                        v = peer[arc]  # without branches, which nothing foretells
                        queue[tail] = v
                        tail += far[v] == UNREACHED
                        far[v] = min(far[v], hops)
                        ways[v] += many * (far[v] == hops)
            begin, end, hops = end, tail, hops + 1


NONE = -1  # where a set has one router only
THREADS = 2
BATCH = 256  # pairs that a thread takes at a time, at most


class Sample(NamedTuple):
    """Counts of sampled pairs, or pairs of pairs.

    values: the count of each.
    radix: k', by which FatPaths divides them.
    """

    values: Ints
    radix: int

    @property
    def mean_fraction(self) -> float:
        return float(self.values.mean() / self.radix)

    def quantile_fraction(self, share: float) -> float:
        """Return the value that `share` of all values are less than, as a fraction of k'."""
        return float(np.quantile(self.values, share, method="nearest")) / self.radix

    @property
    def mean_error_fraction(self) -> float:
        """Return half the 95 % confidence interval of mean_fraction, normal approximation."""
        return normal_half_width(self.values, self.radix)


def random_pairs(graph: RouterGraph, count: int, rng: Generator) -> Ints:
    """Return `count` ordered pairs of different routers with hosts, shape (count, 2), or all."""
    among = graph.endpoints
    if len(among) * (len(among) - 1) <= count:
        return np.array([(a, b) for a in among for b in among if a != b])
    src = rng.integers(len(among), size=count)
    dst = (src + 1 + rng.integers(len(among) - 1, size=count)) % len(among)
    return np.stack([among[src], among[dst]], axis=1)


def random_fours(graph: RouterGraph, count: int, rng: Generator) -> Ints:
    """Return `count` times four different routers a, b, c, d with hosts, shape (count, 4)."""
    among = graph.endpoints
    if len(among) < 4:
        raise ValueError(f"path interference takes four routers with hosts, there are {len(among)}")
    fours = rng.integers(len(among), size=(count, 4))
    again = np.arange(count)
    while len(again):
        fours[again] = rng.integers(len(among), size=(len(again), 4))
        order = np.sort(fours[again], axis=1)
        again = again[(order[:, 1:] == order[:, :-1]).any(axis=1)]
    return among[fours]


class DisjointSearch(NamedTuple):
    """Breadth-first searches from one or two routers to one or two others.

    deleted: of each link, the row whose paths have used it last.
    visited: of each router, the search that saw it last.
    arc, before: arc and router from which that search reached it.
    hops: its links from the sources.
    queue: scratch.
    """

    start: Ints
    peer: Ints
    edge: Ints
    distance: NDArray[np.int8]
    deleted: Ints
    visited: Ints
    arc: Ints
    before: Ints
    hops: Ints
    queue: Ints

    @classmethod
    def of(cls, graph: RouterGraph) -> DisjointSearch:
        """Return a search in which no link is deleted."""
        arrays = (graph.start, graph.peer, graph.edge, graph.distance)
        return cls(*arrays, np.full(graph.edges + 1, -1), *np.full((5, graph.routers), -1))


def disjoint_paths(graph: RouterGraph, sources: Ints, targets: Ints, most_hops: Ints | int) -> Ints:
    """Return c_l(A, B) for each row of `sources` and `targets`, each a set of one or two routers.

    most_hops: l, one for all or one for each row.
    """
    sources, targets = (_as_sets(routers) for routers in (sources, targets))
    hops = np.broadcast_to(np.asarray(most_hops, dtype=np.int64), len(sources)).copy()
    counts = np.zeros(len(sources), dtype=np.int64)
    work = compiled(count_disjoint)
    step = min(BATCH, len(sources) // (2 * THREADS) + 1)

    def batch(begin: int) -> None:
        rows = slice(begin, begin + step)
        work(DisjointSearch.of(graph), sources[rows], targets[rows], hops[rows], counts[rows])

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(batch, range(0, len(sources), step)))
    return counts


def _as_sets(routers: Ints) -> Ints:
    rows = np.asarray(routers, dtype=np.int64)
    rows = rows.reshape(len(rows), -1)
    missing = np.full((len(rows), 2 - rows.shape[1]), NONE)
    return np.ascontiguousarray(np.hstack([rows, missing]))


def count_disjoint(
    search: DisjointSearch, sources: Ints, targets: Ints, most_hops: Ints, counts: Ints
) -> None:
    """Fill `counts` by disjoint_paths() of rows of two routers each, NONE for no second one."""
    number = 0
    for row in range(len(counts)):
        hops = shortest(search.distance, sources[row], targets[row])
        while hops <= most_hops[row]:
            end = first_path(search, sources[row], targets[row], hops, row, number)
            number += 1
            if end == NONE:
                hops += 1  # paths do not become shorter as links are deleted
                continue
            counts[row] += 1
            while search.arc[end] != NONE:
                search.deleted[search.edge[search.arc[end]]] = row
                end = search.before[end]


@allocates_nothing
def shortest(distance: NDArray[np.int8], sources: Ints, targets: Ints) -> int:
    """Return the fewest links, 1 at least, from one of two routers to one of two others."""
    least = UNREACHED
    for s in sources:
        for t in targets:
            if s != NONE and t != NONE:
                least = min(least, distance[s, t])
    return max(1, least)


@allocates_nothing
def first_path(
    search: DisjointSearch, sources: Ints, targets: Ints, length: int, row: int, number: int
) -> int:
    """Return the first of `targets` that search `number` reaches after `length` links, or NONE.

    Links that this row has deleted do not count.  There must be no shorter path.

    A router that is too far from every target, on the whole graph, is not searched: no path of the
    right length leads through it, whichever links are deleted.  The first router one link before a
    target, and with that link, is the one by which the search would get there.
    """
    head, tail = 0, 0
    for s in sources:
        if s != NONE:
            enter(search, s, NONE, NONE, 0, number)
            search.queue[tail] = s
            tail += 1
    while head < tail:
        u = search.queue[head]
        head += 1
        links = search.hops[u] + 1
        for arc in range(search.start[u], search.start[u + 1]):
            v = search.peer[arc]
            if search.visited[v] == number or search.deleted[search.edge[arc]] == row:
                continue
            if not is_near(search.distance, v, targets, length - links):
                continue
            enter(search, v, arc, u, links, number)
            if v in (targets[0], targets[1]):
                return int(v)
            if links < length - 1:
                search.queue[tail] = v
                tail += 1
                continue
            last = last_arc(search, v, targets, row)
            if last != NONE:
                enter(search, search.peer[last], last, v, length, number)
                return int(search.peer[last])
    return NONE


@allocates_nothing
def last_arc(search: DisjointSearch, v: int, targets: Ints, row: int) -> int:
    """Return the first arc from `v` to one of `targets` that this row has not deleted, or NONE."""
    for arc in range(search.start[v], search.start[v + 1]):
        is_target = search.peer[arc] in (targets[0], targets[1])
        if is_target and search.deleted[search.edge[arc]] != row:
            return arc
    return NONE


@allocates_nothing
def enter(search: DisjointSearch, v: int, arc: int, before: int, hops: int, number: int) -> None:
    """Note how search `number` has reached router `v`."""
    search.visited[v] = number
    search.arc[v] = arc
    search.before[v] = before
    search.hops[v] = hops


@allocates_nothing
def is_near(distance: NDArray[np.int8], v: int, targets: Ints, most_hops: int) -> bool:
    """Return True if a target is at most so far from `v` on the whole graph."""
    # links run both ways, so rows will do, which lie together in memory
    return bool(
        distance[targets[0], v] <= most_hops
        or (targets[1] != NONE and distance[targets[1], v] <= most_hops)
    )


def cdp(graph: RouterGraph, pairs: Ints, most_hops: int) -> Sample:
    """Return the CDP of each of `pairs` at `most_hops`."""
    return Sample(disjoint_paths(graph, pairs[:, :1], pairs[:, 1:], most_hops), graph.network_radix)


def minimal_disjoint(graph: RouterGraph, pairs: Ints) -> Ints:
    """Return c_min, the number of disjoint shortest paths, of each of `pairs`."""
    hops = graph.distance[pairs[:, 0], pairs[:, 1]].astype(np.int64)
    return disjoint_paths(graph, pairs[:, :1], pairs[:, 1:], hops)


def interference(graph: RouterGraph, fours: Ints, most_hops: int) -> Sample:
    """Return the PI of each row a, b, c, d of `fours` at `most_hops`."""
    sources = fours[:, [0, 2]]
    to_b, to_d, to_both = (
        disjoint_paths(graph, sources, fours[:, columns], most_hops)
        for columns in ([1], [3], [1, 3])
    )
    return Sample(to_b + to_d - to_both, graph.network_radix)


def total_network_load(graph: RouterGraph) -> float:
    """Return TNL, k' N_r / d: the most flows on shortest paths that share no link (IV-B3)."""
    return len(graph.peer) / graph.mean_distance


def collisions(pairs: Sequence[tuple[int, int]], router_of: Ints) -> Ints:
    """Return how many ordered pairs of routers have 0, 1, 2, ... flows (figure 4).

    Hosts send along `pairs`.  Flows within a router cross no link and do not count.
    """
    ends = router_of[np.asarray(pairs, dtype=np.int64)]
    ends = ends[ends[:, 0] != ends[:, 1]]
    routers = int(router_of.max()) + 1
    flows = np.unique(ends[:, 0] * routers + ends[:, 1], return_counts=True)[1]
    counts = np.bincount(flows, minlength=2)
    counts[0] = routers * (routers - 1) - counts[1:].sum()
    return counts
