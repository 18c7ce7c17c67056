"""How many paths there are between routers: FatPaths, section IV-B.

CDP, the count of disjoint paths c_l(A, B), is found greedily and shortest first: a breadth-first
search from A takes the first path of at most l links to B, its links are deleted in both
directions, and so on until there is none.  There are no residual edges, so the count may be less
than the least cut; FatPaths speaks of a variant of Ford and Fulkerson's algorithm "with various
pruning heuristics", and only the greedy count gives the values of its table IV.

PI, path interference: I^l(ac, bd) = c_l({a,c}, {b}) + c_l({a,c}, {d}) - c_l({a,c}, {b,d}).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from weft.experiments.engines.arrays import Ints
from weft.experiments.engines.compiled import compiled
from weft.experiments.fatpaths.router_graph import RouterGraph
from weft.experiments.report.statistics import normal_half_width

NONE = -1  # where a set has one router only
THREADS = 2
BATCH = 256  # pairs that a thread takes at a time, at most


class Sample(NamedTuple):
    """values: what was counted for each sampled pair, or pair of pairs.  radix: k', by which
    FatPaths divides them.
    """

    values: Ints
    radix: int

    @property
    def mean_fraction(self) -> float:
        return float(self.values.mean() / self.radix)

    def quantile_fraction(self, share: float) -> float:
        """The value that `share` of all values are less than, as a fraction of k'."""
        return float(np.quantile(self.values, share, method="nearest")) / self.radix

    @property
    def mean_error_fraction(self) -> float:
        """Half the 95 % confidence interval of mean_fraction, normal approximation."""
        return normal_half_width(self.values, self.radix)


def random_pairs(graph: RouterGraph, count: int, rng: Generator) -> Ints:
    """`count` ordered pairs of different routers with hosts, shape (count, 2); all of them if there
    are fewer.
    """
    among = graph.endpoints
    if len(among) * (len(among) - 1) <= count:
        return np.array([(a, b) for a in among for b in among if a != b])
    src = rng.integers(len(among), size=count)
    dst = (src + 1 + rng.integers(len(among) - 1, size=count)) % len(among)
    return np.stack([among[src], among[dst]], axis=1)


def random_fours(graph: RouterGraph, count: int, rng: Generator) -> Ints:
    """`count` times four different routers a, b, c, d with hosts, shape (count, 4)."""
    among = graph.endpoints
    if len(among) < 4:
        raise ValueError(f"path interference takes four routers with hosts, there are {len(among)}")
    found = rng.integers(len(among), size=(count, 4))
    again = np.arange(count)
    while len(again):
        found[again] = rng.integers(len(among), size=(len(again), 4))
        order = np.sort(found[again], axis=1)
        again = again[(order[:, 1:] == order[:, :-1]).any(axis=1)]
    return among[found]


def disjoint_paths(graph: RouterGraph, sources: Ints, targets: Ints, most_hops: Ints | int) -> Ints:
    """c_l(A, B) for each row of `sources` and `targets`, of which a row is a set of one router or
    two.

    most_hops: l, one for all or one for each row.
    """
    sources, targets = (_as_sets(each) for each in (sources, targets))
    hops = np.broadcast_to(np.asarray(most_hops, dtype=np.int64), len(sources)).copy()
    found = np.empty(len(sources), dtype=np.int64)
    work = compiled(count_disjoint)

    step = min(BATCH, len(sources) // (2 * THREADS) + 1)

    def batch(begin: int) -> None:
        rows = slice(begin, begin + step)
        work(
            *(graph.start, graph.peer, graph.edge, graph.distance),
            *(sources[rows], targets[rows], hops[rows], found[rows]),
        )

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(batch, range(0, len(sources), step)))
    return found


def _as_sets(routers: Ints) -> Ints:
    rows = np.asarray(routers, dtype=np.int64)
    rows = rows.reshape(len(rows), -1)
    missing = np.full((len(rows), 2 - rows.shape[1]), NONE)
    return np.ascontiguousarray(np.hstack([rows, missing]))


def count_disjoint(
    start: Ints,
    peer: Ints,
    edge: Ints,
    distance: NDArray[np.int8],
    sources: Ints,
    targets: Ints,
    most_hops: Ints,
    found: Ints,
) -> None:
    """disjoint_paths() for rows of two routers each, NONE for no second one; `found` is filled."""
    routers = len(start) - 1
    deleted = np.full(len(peer) // 2 + 1, -1)
    # of each router: the search that saw it last, the arc and the router that it was found from,
    # links from A; a queue
    scratch = np.full((5, routers), -1)
    search = 0
    for row in range(len(found)):
        found[row] = 0
        hops = shortest(distance, sources[row], targets[row])
        while hops <= most_hops[row]:
            end = first_path(
                start,
                peer,
                edge,
                distance,
                sources[row],
                targets[row],
                hops,
                row,
                deleted,
                search,
                scratch,
            )
            search += 1
            if end == NONE:
                hops += 1  # paths do not become shorter as links are deleted
                continue
            found[row] += 1
            while scratch[1, end] != NONE:
                deleted[edge[scratch[1, end]]] = row
                end = scratch[2, end]


def shortest(distance: NDArray[np.int8], sources: Ints, targets: Ints) -> int:
    """The fewest links, 1 at least, from one of two routers to one of two others.

    NONE for no second one.
    """
    least: int = max(1, distance[sources[0], targets[0]])
    if targets[1] != NONE:
        least = max(1, min(least, distance[sources[0], targets[1]]))
    if sources[1] != NONE:
        least = max(1, min(least, distance[sources[1], targets[0]]))
        if targets[1] != NONE:
            least = max(1, min(least, distance[sources[1], targets[1]]))
    return least


def first_path(
    start: Ints,
    peer: Ints,
    edge: Ints,
    distance: NDArray[np.int8],
    sources: Ints,
    targets: Ints,
    length: int,
    row: int,
    deleted: Ints,
    search: int,
    scratch: Ints,
) -> int:
    """The first of `targets` that a breadth-first search from `sources` finds after `length` links
    that are not marked with `row` in `deleted`; NONE if there is none.  There must be no shorter
    path.

    A router that is too far from every target, on the whole graph, is not searched: no path of the
    right length leads through it, whichever links are deleted.  The first router that is found one
    link before a target, and has that link, is the one by which the search would get there.
    """
    seen, arc_to, before, hops, queue = scratch
    t1, t2 = targets
    # links run both ways, so rows will do, which lie together in memory
    to1, to2 = distance[t1], distance[t2]
    head, tail = 0, 0
    for s in sources:
        if s != NONE:
            seen[s], arc_to[s], hops[s], queue[tail] = search, NONE, 0, s
            tail += 1
    while head < tail:
        u = queue[head]
        head += 1
        left, links = length - hops[u] - 1, hops[u] + 1
        for arc in range(start[u], start[u + 1]):
            v = peer[arc]
            if (
                (to1[v] > left and (t2 == NONE or to2[v] > left))
                or seen[v] == search
                or deleted[edge[arc]] == row
            ):
                continue
            seen[v], arc_to[v], before[v], hops[v] = search, arc, u, links
            if v in (t1, t2):
                return int(v)
            if left > 1:
                queue[tail] = v
                tail += 1
                continue
            for last in range(start[v], start[v + 1]):
                t = peer[last]
                if t in (t1, t2) and deleted[edge[last]] != row:
                    arc_to[t], before[t] = last, v
                    return int(t)
    return NONE


def cdp(graph: RouterGraph, pairs: Ints, most_hops: int) -> Sample:
    """CDP of each of `pairs` at `most_hops`."""
    return Sample(disjoint_paths(graph, pairs[:, :1], pairs[:, 1:], most_hops), graph.network_radix)


def minimal_disjoint(graph: RouterGraph, pairs: Ints) -> Ints:
    """c_min: how many disjoint shortest paths join each of `pairs`."""
    hops = graph.distance[pairs[:, 0], pairs[:, 1]].astype(np.int64)
    return disjoint_paths(graph, pairs[:, :1], pairs[:, 1:], hops)


def interference(graph: RouterGraph, fours: Ints, most_hops: int) -> Sample:
    """PI of each row a, b, c, d of `fours` at `most_hops`."""
    sources = fours[:, [0, 2]]
    to_b, to_d, to_both = (
        disjoint_paths(graph, sources, fours[:, columns], most_hops)
        for columns in ([1], [3], [1, 3])
    )
    return Sample(to_b + to_d - to_both, graph.network_radix)


def total_network_load(graph: RouterGraph) -> float:
    """TNL: k' N_r / d, the most flows on shortest paths that do not share a link (section
    IV-B3).
    """
    return len(graph.peer) / graph.mean_distance


def collisions(pairs: Sequence[tuple[int, int]], router_of: Ints) -> Ints:
    """How many ordered pairs of routers have 0, 1, 2, ... flows, if hosts send along `pairs`
    (figure 4).

    Flows within a router cross no link and do not count.
    """
    ends = router_of[np.asarray(pairs, dtype=np.int64)]
    ends = ends[ends[:, 0] != ends[:, 1]]
    routers = int(router_of.max()) + 1
    found = np.bincount(
        np.unique(ends[:, 0] * routers + ends[:, 1], return_counts=True)[1], minlength=2
    )
    found[0] = routers * (routers - 1) - found[1:].sum()
    return found
