"""Paths that FatPaths' layers are compared with and that no forwarding table by destination holds:
the k shortest, and Valiant's by way of a random router.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from weft.experiments.engines.arrays import Floats, Ints
from weft.experiments.engines.compiled import compiled
from weft.experiments.fatpaths.achievable_throughput import Demands, RouterPath
from weft.experiments.fatpaths.router_graph import RouterGraph


def k_shortest_paths(
    graph: RouterGraph, demands: Demands, k: int, rng: Generator
) -> list[list[RouterPath]]:
    """The k shortest paths of each demand that enter no router twice, fewer where there are not as
    many, by Yen's algorithm (FatPaths, appendix C-D); of equal ones, `rng` draws.
    """
    order = np.lexsort((rng.random(len(graph.peer)), graph.tail))  # of the arcs of each router
    search = compiled(detour)
    by = np.empty(graph.routers, dtype=np.int64)

    def shortest(
        src: int, dst: int, arcs: NDArray[np.bool_], routers: NDArray[np.bool_]
    ) -> RouterPath | None:
        if not search(graph.start, graph.peer, order, src, dst, arcs, routers, by):
            return None
        at, path = dst, []
        while at != src:
            path.append(int(by[at]))
            at = int(graph.tail[path[-1]])
        return tuple(reversed(path))

    def yen(src: int, dst: int) -> list[RouterPath]:
        none = np.zeros(len(graph.peer), dtype=bool), np.zeros(graph.routers, dtype=bool)
        first = shortest(src, dst, *none)
        found, candidates = [first] if first else [], dict[RouterPath, tuple[int, float]]()
        while found and len(found) < k:
            for hop in range(len(found[-1])):
                begin = found[-1][:hop]
                arcs, routers = none[0].copy(), none[1].copy()
                arcs[[path[hop] for path in found if path[:hop] == begin]] = True
                routers[graph.tail[list(begin)]] = True
                rest = shortest(int(graph.tail[found[-1][hop]]), dst, arcs, routers)
                if rest:
                    candidates.setdefault(begin + rest, (hop + len(rest), rng.random()))
            if not candidates:
                break
            found.append(min(candidates, key=candidates.__getitem__))
            del candidates[found[-1]]
        return found

    return [
        yen(src, dst) for src, dst in zip(demands.src.tolist(), demands.dst.tolist(), strict=True)
    ]


def detour(
    start: Ints,
    peer: Ints,
    order: Ints,
    src: int,
    dst: int,
    arcs: NDArray[np.bool_],
    routers: NDArray[np.bool_],
    by: Ints,
) -> bool:
    """Set by[u] to the last arc of a shortest path from `src` to u, for `dst` and all routers
    before it, that has none of `arcs` and `routers`; False if there is none to `dst`.

    order: the arcs of each router, in the order in which they are tried.
    """
    by[:] = -1
    queue = np.empty(len(by), np.int64)
    queue[0], head, tail = src, 0, 1
    while head < tail:
        u = queue[head]
        head += 1
        for place in range(start[u], start[u + 1]):
            arc = order[place]
            v = peer[arc]
            if not arcs[arc] and not routers[v] and v != src and by[v] == -1:
                by[v] = arc
                if v == dst:
                    return True
                queue[tail] = v
                tail += 1
    return False


def valiant_load(graph: RouterGraph, demands: Demands) -> Floats:
    """What each arc carries if every demand is sent once, its packets by way of routers drawn
    uniformly from all, and from there, as to there, split evenly at each router among the next hops
    of shortest paths (Valiant, SIAM J. Comput. 1982).  1 / max of it is the throughput.
    """
    traffic = np.zeros((graph.routers, graph.routers))
    share = demands.amount / graph.routers
    np.add.at(traffic, demands.src, share[:, None])
    np.add.at(traffic.T, demands.dst, share[:, None])
    load = np.zeros(len(graph.peer))
    compiled(even_load)(graph.start, graph.peer, graph.distance, traffic, load)
    return load


def even_load(
    start: Ints, peer: Ints, distance: NDArray[np.int8], traffic: Floats, load: Floats
) -> None:
    """Add to the load of each arc what `traffic`, shape (routers, routers), brings over it where
    every router splits evenly among the next hops of shortest paths.
    """
    routers = len(start) - 1
    for dst in range(routers):
        arriving = traffic[:, dst].copy()
        far = distance[:, dst]
        for hops in range(int(far.max()), 0, -1):
            for u in range(routers):
                if far[u] != hops or arriving[u] == 0:
                    continue
                ways = 0
                for arc in range(start[u], start[u + 1]):
                    ways += far[peer[arc]] == hops - 1
                for arc in range(start[u], start[u + 1]):
                    if far[peer[arc]] == hops - 1:
                        load[arc] += arriving[u] / ways
                        arriving[peer[arc]] += arriving[u] / ways
