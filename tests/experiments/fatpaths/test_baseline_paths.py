from itertools import islice, pairwise

import networkx as nx
import numpy as np
import pytest

from weft.experiments.fatpaths import achievable_throughput
from weft.experiments.fatpaths.achievable_throughput import Demands, k_shortest_paths, valiant_load
from weft.experiments.fatpaths.router_graph import RouterGraph
from weft.topologies import build


def rng(seed=0):
    return np.random.default_rng(seed)


def plain(graph):
    return nx.Graph((u, v) for u, v in zip(graph.tail.tolist(), graph.peer.tolist(), strict=True))


@pytest.mark.parametrize(
    ("spec", "most"), [("slimfly:q=3", 20), ("hyperx:l=2,s=3", 20), ("complete:n=5,p=1", 500)]
)
def test_the_k_shortest_paths_are_as_long_as_networkx_finds_them(spec, most):
    graph = RouterGraph.of(build(spec))
    demands = achievable_throughput.worst_case_demands(graph, rng())
    for k in (1, 2, 7, most):
        found = k_shortest_paths(graph, demands, k, rng(k))
        for src, dst, paths in zip(demands.src.tolist(), demands.dst.tolist(), found, strict=True):
            expected = [
                len(path) - 1
                for path in islice(nx.shortest_simple_paths(plain(graph), src, dst), k)
            ]
            assert [len(path) for path in paths] == expected
            assert len(set(paths)) == len(paths)
            for path in paths:
                routers = [src, *graph.peer[list(path)].tolist()]
                assert graph.tail[list(path)].tolist() == routers[:-1]
                assert routers[-1] == dst
                assert len(set(routers)) == len(routers)


def test_there_are_no_more_paths_than_there_are():
    graph = RouterGraph.of(build("complete:n=4,p=1"))
    (paths,) = k_shortest_paths(
        graph, Demands(np.array([0]), np.array([3]), np.ones(1)), 100, rng()
    )
    assert sorted(map(len, paths)) == [1, 2, 2, 3, 3]


@pytest.mark.parametrize("spec", ["hyperx:l=2,s=3", "dragonfly:p=2", "slimfly:q=3"])
def test_valiants_load_is_that_of_every_way_counted_one_by_one(spec):
    graph = RouterGraph.of(build(spec))
    demands = achievable_throughput.worst_case_demands(graph, rng())
    net, expected, arc_of = (
        plain(graph),
        np.zeros(len(graph.peer)),
        achievable_throughput.arcs(graph),
    )

    def send(src, dst, amount):
        """Split evenly at each router."""
        if src == dst:
            return
        near = nx.shortest_path_length(net, src, dst) - 1
        hops = [
            neighbour
            for neighbour in net[src]
            if nx.shortest_path_length(net, neighbour, dst) == near
        ]
        for neighbour in hops:
            expected[arc_of[src, neighbour]] += amount / len(hops)
            send(neighbour, dst, amount / len(hops))

    for src, dst, amount in zip(
        demands.src.tolist(), demands.dst.tolist(), demands.amount, strict=True
    ):
        for by in range(graph.routers):
            for pair in pairwise([src, by, dst]):
                send(*pair, amount / graph.routers)
    assert valiant_load(graph, demands) == pytest.approx(expected)
