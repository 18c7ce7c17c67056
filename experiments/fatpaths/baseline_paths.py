"""The k shortest paths, and Valiant's by way of a random router, beside FatPaths' layers.

No forwarding table by destination holds them.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from weft.daemons.core.compiled import compiled
from weft.daemons.fatpaths import trees
from weft.daemons.fatpaths.layers import RouterArrays
from weft.experiments.engines.arrays import Floats, Ints
from weft.experiments.fatpaths.achievable_throughput import Demands, RouterPath, arcs
from weft.experiments.fatpaths.router_graph import RouterGraph


def k_shortest_paths(
    graph: RouterGraph, demands: Demands, k: int, rng: Generator
) -> list[list[RouterPath]]:
    """Return the k shortest paths of each demand that enter no router twice (appendix C-D).

    There are fewer where the graph has not as many; of equally long ones `rng` draws.
    """
    arc_of = arcs(graph)
    nodes, begin = trees.k_shortest_paths(RouterArrays(graph.start, graph.peer), k, rng, compiled)
    pair = demands.dst * (graph.routers - 1) + demands.src - (demands.src > demands.dst)
    paths = []
    for ends in begin[pair].tolist():
        ways = [nodes[ends[rank] : ends[rank + 1]] for rank in range(k)]
        paths.append([tuple(arc_of[way[:-1], way[1:]].tolist()) for way in ways if len(way)])
    return paths


def valiant_load(graph: RouterGraph, demands: Demands) -> Floats:
    """Return what each arc carries if every demand is sent once by way of random routers.

    Packets go by routers drawn uniformly from all, and from there, as to there, split evenly at
    each router among the next hops of shortest paths (Valiant, SIAM J. Comput. 1982).  1 / max of
    it is the throughput.
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
    """Add to the load of each arc what `traffic`, shape (routers, routers), brings over it.

    Every router splits evenly among the next hops of shortest paths.
    """
    routers = len(start) - 1
    for dst in range(routers):
        arriving = traffic[:, dst].copy()
        far = distance[:, dst]
        for hops in range(int(far.max()), 0, -1):
            for u in range(routers):
                if far[u] != hops or arriving[u] == 0:
                    continue
                nexts = 0
                for arc in range(start[u], start[u + 1]):
                    nexts += far[peer[arc]] == hops - 1
                for arc in range(start[u], start[u + 1]):
                    if far[peer[arc]] == hops - 1:
                        load[arc] += arriving[u] / nexts
                        arriving[peer[arc]] += arriving[u] / nexts
