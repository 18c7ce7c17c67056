import numpy as np
import pytest

from weft.daemons.fatpaths import construction
from weft.daemons.fatpaths.layers import RouterArrays, everything, next_hops, path
from weft.experiments.fatpaths import achievable_throughput
from weft.experiments.fatpaths.achievable_throughput import Demands
from weft.experiments.fatpaths.layered_throughput import planned_layers
from weft.experiments.fatpaths.planned_paths import planned_paths
from weft.experiments.fatpaths.router_graph import RouterGraph
from weft.topologies import build


def rng(seed=0):
    return np.random.default_rng(seed)


def case(spec, seed=0):
    topology = build(spec)
    graph, routers = RouterGraph.of(topology), RouterArrays.of(topology)
    demands = achievable_throughput.worst_case_demands(graph, rng(seed))
    first = next_hops(routers, everything(routers), rng(seed))
    own = [found for (found,) in achievable_throughput.table_paths(graph, first[None], demands)]
    return graph, routers, demands, own


@pytest.mark.parametrize(
    ("spec", "n"), [("slimfly:q=3", 3), ("slimfly:q=3", 5), ("dragonfly:p=2", 4)]
)
def test_a_few_planned_paths_carry_more_than_as_many_shortest_and_no_more_than_all(spec, n):
    graph, _, demands, own = case(spec)
    plan = planned_paths(graph, demands, own, n)
    together = [[path, *paths] for path, paths in zip(own, plan, strict=True)]
    for src, dst, paths in zip(demands.src.tolist(), demands.dst.tolist(), together, strict=True):
        assert len(paths) == len(set(paths)) <= n
        for arcs in map(list, paths):
            routers = [src, *graph.peer[arcs].tolist()]
            assert routers[-1] == dst
            assert graph.tail[arcs].tolist() == routers[:-1]
            assert len(set(routers)) == len(routers)
    found = achievable_throughput.maximum(together, demands, len(graph.peer)).throughput
    naive = [paths[:n] for paths in achievable_throughput.short_paths(graph, demands, 1)]
    assert found > achievable_throughput.maximum(naive, demands, len(graph.peer)).throughput
    assert found <= achievable_throughput.flow_bound(graph, demands)[1] + 1e-6


def test_with_as_many_paths_as_there_are_nothing_is_lost():
    graph, _, demands, own = case("slimfly:q=3")
    plan = planned_paths(graph, demands, own, 60)
    together = [[path, *paths] for path, paths in zip(own, plan, strict=True)]
    every = achievable_throughput.maximum(
        achievable_throughput.short_paths(graph, demands, 1), demands, len(graph.peer)
    ).throughput
    assert (
        achievable_throughput.maximum(together, demands, len(graph.peer)).throughput >= every - 1e-9
    )


def test_layers_hold_the_planned_paths_and_lead_everybody_else_without_a_loop():
    graph, routers, demands, _ = case("slimfly:q=3")
    tables = planned_layers(routers, graph, demands, 5, rng(0))
    first = achievable_throughput.table_paths(graph, tables[:1], demands)
    plan = planned_paths(graph, demands, [found for (found,) in first], 5)
    held = achievable_throughput.table_paths(graph, tables, demands)
    for paths, planned in zip(held, plan, strict=True):
        assert set(planned) <= set(paths)
    for table in tables:
        for src in range(18):
            for dst in range(18):
                assert len(path(table, src, dst)) <= 18


def test_planned_paths_that_do_not_go_together_are_in_different_layers_or_left_out():
    routers = RouterArrays.of(build("complete:n=5,p=1"))
    first = next_hops(routers, everything(routers), rng())
    planned = [(0, 1, 4), (1, 2, 4), (2, 0, 4), (0, 3, 4)]
    found = construction.in_tree_layers(routers, 3, rng(), first=first, planned=planned)
    ways = [{tuple(path(table, src, 4)) for table in found} for src in range(4)]
    assert {(0, 1, 4), (0, 3, 4)} <= ways[0]  # each in a layer of its own
    assert (1, 2, 4) in ways[1]  # with (0, 3, 4): in the other layer 1 has to send to 4
    assert (2, 0, 4) not in ways[2]  # in either layer 0 sends elsewhere


def test_demands_to_one_destination_share_its_trees():
    topology = build("slimfly:q=3")
    graph, routers = RouterGraph.of(topology), RouterArrays.of(topology)
    demands = Demands(np.array([5, 9, 14]), np.array([0, 0, 0]), np.ones(3))
    tables = planned_layers(routers, graph, demands, 6, rng())
    paths = achievable_throughput.table_paths(graph, tables, demands)
    assert achievable_throughput.maximum(paths, demands, len(graph.peer)).throughput > 1.2
