from itertools import permutations

import networkx as nx
import numpy as np
import pytest

from weft.daemons.core.compiled import compiled
from weft.daemons.fatpaths import construction
from weft.daemons.fatpaths.layers import LayerOptions, RouterArrays
from weft.experiments.fatpaths import achievable_throughput
from weft.experiments.fatpaths.achievable_throughput import Demands
from weft.experiments.fatpaths.router_graph import RouterGraph
from weft.topologies import build


def rng(seed=0):
    return np.random.default_rng(seed)


def router_graph(spec):
    return RouterGraph.of(build(spec))


def single_demand(src, dst, amount=1.0):
    return Demands(np.array([src]), np.array([dst]), np.array([amount]))


def general(graph, demands):
    """The multi-commodity flow by arcs, without columns: one flow for each source, as a linear
    program of its own."""
    import highspy

    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    total = solver.addVariable(obj=1)
    sources = sorted(set(demands.src.tolist()))
    flow = {(s, arc): solver.addVariable() for s in sources for arc in range(len(graph.peer))}
    for arc in range(len(graph.peer)):
        solver.addConstr(sum(flow[s, arc] for s in sources) <= 1)
    for s in sources:
        asked = {
            int(t): d
            for u, t, d in zip(demands.src, demands.dst, demands.amount, strict=True)
            if u == s
        }
        for v in range(graph.routers):
            if v != s:
                into = sum(flow[s, arc] for arc in range(len(graph.peer)) if graph.peer[arc] == v)
                out = sum(flow[s, arc] for arc in range(graph.start[v], graph.start[v + 1]))
                solver.addConstr(into - out - asked.get(v, 0.0) * total >= 0)
    solver.maximize(total)
    return solver.getObjectiveValue()


@pytest.mark.parametrize("size", [1, 2, 5, 7])
def test_an_assignment_is_the_cheapest_of_all(size):
    cost = rng(size).random((size, size))
    columns = compiled(achievable_throughput.assignment)(cost)
    assert sorted(columns) == list(range(size))
    best = min(sum(cost[i, j] for i, j in enumerate(order)) for order in permutations(range(size)))
    assert cost[np.arange(size), columns].sum() == pytest.approx(best)


def test_an_assignment_is_that_of_networkx():
    cost = rng(3).integers(0, 50, (25, 25)).astype(float)
    columns = compiled(achievable_throughput.assignment)(cost)
    plain = nx.Graph()
    plain.add_weighted_edges_from(
        (("row", i), ("column", j), 100 - cost[i, j]) for i in range(25) for j in range(25)
    )
    best = 25 * 100 - sum(
        plain.edges[edge]["weight"] for edge in nx.max_weight_matching(plain, maxcardinality=True)
    )
    assert cost[np.arange(25), columns].sum() == best


@pytest.mark.parametrize("spec", ["slimfly:q=5", "dragonfly:p=2", "hyperx:l=2,s=4", "fattree:k=4"])
def test_the_worst_case_goes_as_far_as_there_is(spec):
    graph = router_graph(spec)
    to = achievable_throughput.worst_case(graph, rng())
    assert sorted(to) == graph.endpoints.tolist()
    far = graph.distance[graph.endpoints, to]
    assert (far == graph.diameter).all()
    assert (achievable_throughput.worst_case(graph, rng(1)) != to).any()


def test_the_intensity_is_the_fraction_of_hosts_that_send():
    graph = router_graph("slimfly:q=5,p=4")
    whole = achievable_throughput.worst_case_demands(graph, rng())
    assert (whole.amount == 4).all()
    assert len(whole) == 50
    part = achievable_throughput.worst_case_demands(graph, rng(), 0.55)
    assert part.amount.sum() == 110
    assert part.amount.max() <= 4
    with pytest.raises(ValueError, match=r"^intensity must lie in \(0, 1\], got 1.5$"):
        achievable_throughput.worst_case_demands(graph, rng(), 1.5)


def test_mice_send_a_tenth_of_what_elephants_do():
    graph = router_graph("slimfly:q=5,p=4")
    whole = achievable_throughput.worst_case_demands(graph, rng(), 0.55)
    mixed = achievable_throughput.worst_case_demands(graph, rng(), 0.55, mice=0.9)
    assert mixed.amount.sum() == pytest.approx(11 + 99 / 10)
    assert (mixed.dst == whole.dst).all()
    assert (mixed.amount <= whole.amount).all()
    few = achievable_throughput.worst_case_demands(graph, rng(), 0.01, mice=0.99)
    assert few.amount.tolist() == [1, 0.1], "one elephant at least"


def test_known_maxima():
    """A clique: the link and 2 links through each other router; a HyperX's two shortest paths; a
    Moore graph's one."""
    clique = router_graph("complete:n=6,p=1")
    demand, arcs = single_demand(0, 3), len(clique.peer)
    assert achievable_throughput.maximum(
        achievable_throughput.minimal_paths(clique, demand), demand, arcs
    ).throughput == pytest.approx(1)
    assert achievable_throughput.maximum(
        achievable_throughput.short_paths(clique, demand, 1), demand, arcs
    ).throughput == pytest.approx(5)
    assert achievable_throughput.flow_bound(clique, demand) == pytest.approx((5, 5))
    grid = router_graph("hyperx:l=2,s=3")
    demand = single_demand(0, 4, amount=2.0)
    result = achievable_throughput.maximum(
        achievable_throughput.minimal_paths(grid, demand), demand, len(grid.peer)
    )
    assert result.throughput == pytest.approx(1)
    assert result.flow.tolist() == pytest.approx([1, 1])
    moore = router_graph("slimfly:q=5,p=4")
    worst = achievable_throughput.worst_case_demands(moore, rng())
    result = achievable_throughput.maximum(
        achievable_throughput.minimal_paths(moore, worst), worst, len(moore.peer)
    )
    assert result.throughput == pytest.approx(1 / 8)  # some link carries two demands of 4


@pytest.mark.parametrize(
    "spec", ["slimfly:q=3", "dragonfly:p=1", "hyperx:l=2,s=3", "jellyfish:n=12,r=3,p=2,seed=1"]
)
def test_columns_reach_the_multi_commodity_flow(spec):
    graph = router_graph(spec)
    demands = achievable_throughput.worst_case_demands(graph, rng())
    reached, bound = achievable_throughput.flow_bound(graph, demands)
    exact = general(graph, demands)
    assert reached <= exact * (1 + 1e-6)
    assert exact <= bound * (1 + 1e-6)
    assert reached >= 0.999 * bound
    all_paths = achievable_throughput.maximum(
        achievable_throughput.short_paths(graph, demands, 1), demands, len(graph.peer)
    ).throughput
    assert all_paths <= exact * (1 + 1e-6)


def test_short_paths_are_all_there_are():
    graph = router_graph("hyperx:l=2,s=3")
    plain = nx.Graph((u, v) for u, v in zip(graph.tail.tolist(), graph.peer.tolist(), strict=True))
    (found,) = achievable_throughput.short_paths(graph, single_demand(0, 4), 1)
    expected = set(map(tuple, nx.all_simple_paths(plain, 0, 4, cutoff=3)))
    assert {(0, *(int(graph.peer[arc]) for arc in path)) for path in found} == expected
    assert len(found) == len(expected)


def test_more_layers_do_not_lower_the_maximum_and_its_flows_fit():
    topology = build("slimfly:q=4")
    graph, router = RouterArrays.of(topology), RouterGraph.of(topology)
    demands, arcs = achievable_throughput.worst_case_demands(router, rng()), len(router.peer)
    tables = construction.layers_of("intree", graph, LayerOptions(6), rng())
    last = 0.0
    for n in range(1, 7):
        paths = achievable_throughput.table_paths(router, tables[:n], demands)
        result = achievable_throughput.maximum(paths, demands, arcs)
        assert result.throughput >= last - 1e-9
        last = result.throughput
        load, columns = np.zeros(arcs), [path for group in paths for path in group]
        for amount, path in zip(result.flow, columns, strict=True):
            load[list(path)] += amount
        assert load.max() <= 1 + 1e-6
        assert load.max() > 1 - 1e-6
        sent = [0.0] * len(demands)
        owners = [number for number, group in enumerate(paths) for _ in group]
        for amount, owner in zip(result.flow, owners, strict=True):
            sent[owner] += amount
        assert (np.array(sent) >= result.throughput * demands.amount - 1e-6).all()
    assert last <= achievable_throughput.flow_bound(router, demands)[1] * (1 + 1e-6)
