"""Layers of FatPaths: no loops for any layer, source and destination; what each construction
promises."""

import time
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.daemons.core.compiled import compiled
from weft.daemons.fatpaths import construction, layers
from weft.daemons.fatpaths.layers import (
    LayerOptions,
    RouterArrays,
    distances,
    distinct_paths,
    everything,
    path,
    tables,
)
from weft.topologies import build
from weft.topologies.core.user_graph import topology_of

SPECS = [
    "slimfly:q=3",
    "slimfly:q=5",
    "dragonfly:p=2",
    "hyperx:l=2,s=3",
    "jellyfish:n=14,r=4,p=1,seed=3",
    "clos:n=2,r=3,m=2",
]


def make_layers(name, graph, n, seed=0, *, rho=0.8, **options):
    return construction.layers_of(name, graph, LayerOptions(n, rho), rng(seed), **options)


def rng(seed=0):
    return np.random.default_rng(seed)


def graph_of(spec):
    return RouterArrays.of(build(spec))


def check(graph, found):
    """Every path of every layer follows links, ends, and enters no router twice; layer 0's are
    shortest."""
    neighbours = [
        set(graph.peer[graph.start[u] : graph.start[u + 1]].tolist()) for u in range(graph.routers)
    ]
    far = distances(graph, everything(graph))
    for number, table in enumerate(found):
        for src in range(graph.routers):
            for dst in range(graph.routers):
                way = path(table, src, dst)
                assert len(set(way)) == len(way)
                assert all(b in neighbours[a] for a, b in pairwise(way))
                assert number or len(way) - 1 == far[src, dst]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("name", construction.CONSTRUCTIONS)
@pytest.mark.slow
def test_no_layer_loops(spec, name):
    graph = graph_of(spec)
    layers = make_layers(name, graph, 5)
    assert layers.shape == (5, graph.routers, graph.routers)
    check(graph, layers)


@settings(max_examples=60, deadline=None)
@given(st.integers(4, 11), st.integers(0, 10**6), st.data())
def test_any_sets_of_arcs_make_layers_without_loops(size, seed, data):
    """Arcs drawn one by one: layers that are directed, not connected, even empty."""
    graph = RouterArrays.of(topology_of(nx.connected_watts_strogatz_graph(size, 3, 0.5, seed=seed)))
    drawn = [
        np.array(
            data.draw(st.lists(st.booleans(), min_size=len(graph.peer), max_size=len(graph.peer)))
        )
        for _ in range(2)
    ]
    next_hops = tables(graph, drawn, rng(seed))
    check(graph, next_hops)
    for arcs, table in zip(drawn, next_hops[1:], strict=True):
        far = distances(graph, arcs)
        for src, dst in zip(*np.nonzero((far < layers.UNREACHED) & (far > 0)), strict=True):
            assert len(path(table, src, dst)) - 1 == far[src, dst]  # shortest within the layer


@settings(max_examples=25, deadline=None)
@given(
    st.integers(5, 12),
    st.integers(0, 10**6),
    st.sampled_from(sorted(set(construction.CONSTRUCTIONS) - {"random"})),
)
def test_constructions_have_no_loops_on_any_graph(size, seed, name):
    graph = RouterArrays.of(topology_of(nx.connected_watts_strogatz_graph(size, 4, 0.7, seed=seed)))
    check(graph, make_layers(name, graph, 4, seed))


def test_distances_are_those_of_networkx_on_directed_arcs():
    graph = graph_of("dragonfly:p=2")
    arcs = rng().random(len(graph.peer)) < 0.4
    plain = nx.DiGraph()
    plain.add_nodes_from(range(graph.routers))
    plain.add_edges_from(zip(graph.tail[arcs].tolist(), graph.peer[arcs].tolist(), strict=True))
    hops = distances(graph, arcs)
    for src in plain:
        expected = nx.single_source_shortest_path_length(plain, src)
        assert {t: int(hops[src, t]) for t in plain if hops[src, t] < layers.UNREACHED} == expected


def test_distances_of_thousands_of_routers_take_seconds():
    """A product of matrices for each hop would take ten times as long."""
    graph = graph_of("slimfly:q=47,p=1")
    begin_s = time.process_time()
    hops = distances(graph, everything(graph))
    assert time.process_time() - begin_s < 4
    degree = (3 * 47 + 1) // 2  # of an MMS graph, whose diameter is 2; q = 4 w - 1
    assert set(np.bincount(hops[0])) == {1, degree, graph.routers - 1 - degree}
    assert hops.max() == 2


@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_a_random_layer_has_so_many_links_and_joins_all(rho):
    graph = graph_of("slimfly:q=5")
    layers = make_layers("random", graph, 4, rho=rho)
    for table in layers[1:]:
        used = {
            (min(u, v), max(u, v))
            for t in range(50)
            for u, v in enumerate(table[t].tolist())
            if u != v
        }
        assert len(used) <= int(rho * 175)
        plain = nx.Graph(list(used))
        assert len(plain) == 50
        assert nx.is_connected(plain)
        assert len(path(table, 3, 40)) - 1 == nx.shortest_path_length(plain, 3, 40)


def test_next_hops_are_drawn_among_equals():
    """A HyperX has two shortest paths between routers that differ in both coordinates: layers with
    all links differ."""
    graph = graph_of("hyperx:l=2,s=4")
    counts = distinct_paths(make_layers("random", graph, 8, rho=1.0))
    far = distances(graph, everything(graph))
    assert set(counts[far == 1]) == {1}
    assert set(counts[far == 2]) <= {1, 2}
    assert (counts[far == 2] == 2).mean() > 0.95  # 1 - 2^-7


@pytest.mark.slow
def test_in_trees_give_every_pair_of_a_moore_graph_nearly_all_its_paths():
    """slimfly:q=5 has 7 paths of at most 3 links between routers 2 apart, and none but the link
    between neighbours."""
    graph = graph_of("slimfly:q=5")
    far = distances(graph, everything(graph))
    ours, random = (distinct_paths(make_layers(name, graph, 9)) for name in ("intree", "random"))
    assert ours[far == 2].min() >= 5
    assert ours[far == 2].mean() > 6.5 > random[far == 2].mean()
    assert ours[far == 1].min() == 2  # the other one is 4 links long
    assert random[far == 2].min() <= 3


@pytest.mark.slow
def test_in_trees_are_not_much_longer_than_shortest():
    graph = graph_of("slimfly:q=5")
    far = distances(graph, everything(graph))
    lengths = [
        (far[src, dst], len(path(table, src, dst)) - 1)
        for table in make_layers("intree", graph, 9)
        for src in range(50)
        for dst in range(50)
    ]
    apart = [length for distance, length in lengths if distance == 2]
    assert np.mean([length <= 3 for length in apart]) > 0.9
    # behind a neighbour of the destination that goes 4 itself
    assert max(length for _, length in lengths) <= 5


def test_the_first_paths_of_overlapping_layers_are_one_link_longer():
    graph = graph_of("slimfly:q=5")
    layers = make_layers("overlap", graph, 6)
    lengths = [
        len(path(table, s, t)) - 1
        for table in layers[1:]
        for s in range(50)
        for t in range(50)
        if s != t
    ]
    assert lengths.count(3) > 0.05 * len(lengths)


def test_past_paths_to_a_router_are_a_spanning_tree():
    graph = graph_of("slimfly:q=5")
    layers = make_layers("past-valiant", graph, 4)
    for table in layers[1:]:
        for t in range(50):
            tree = nx.Graph([(u, v) for u, v in enumerate(table[t].tolist()) if u != v])
            assert nx.is_tree(tree)
            assert len(tree) == 50
    lengths = [len(path(layers[1], s, t)) - 1 for s in range(50) for t in range(50) if s != t]
    assert max(lengths) == 4  # up and down a tree of depth 2
    assert np.mean(lengths) > 2.5


def test_past_minimal_is_shortest_paths_whose_ties_differ():
    graph = graph_of("hyperx:l=2,s=4")
    far = distances(graph, everything(graph))
    layers = make_layers("past", graph, 3)
    assert all(
        len(path(table, s, t)) - 1 == far[s, t]
        for table in layers
        for s in range(16)
        for t in range(16)
    )
    assert (layers[0] != layers[1]).any()


def test_compiled_constructions_are_the_same():
    graph = graph_of("slimfly:q=4")
    for name in ("overlap", "intree", "spain", "k-shortest"):
        assert (
            make_layers(name, graph, 4) == make_layers(name, graph, 4, accelerate=compiled)
        ).all()


def test_distinct_paths_are_counted_as_sets():
    graph = graph_of("slimfly:q=3")
    layers = make_layers("random", graph, 6, rho=0.7)
    counts = distinct_paths(layers)
    for src in range(18):
        for dst in range(18):
            expected = len({tuple(path(table, src, dst)) for table in layers}) if src != dst else 0
            assert counts[dst, src] == expected


@pytest.mark.parametrize(("make", "line"), [
    (lambda: make_layers("random", graph_of("slimfly:q=3"), 0, rho=0.5),
     "layered routing: there can be 1 .. 64 layers, got 0"),
    (lambda: make_layers("random", graph_of("slimfly:q=3"), 3, rho=1.5),
     "layered routing: rho must lie in (0, 1], got 1.5"),
    (lambda: make_layers("random", graph_of("slimfly:q=3"), 3, rho=0.1),
     "layered routing: no draw of 0.1 of the links joins all routers; raise rho"),
    (lambda: graph_of("dcell:n=3,k=1"),
     "layered routing needs a switch network, and the servers of dcell:n=3,k=1 forward"),
])  # fmt: skip
def test_what_cannot_be_is_refused_in_one_line(make, line):
    with pytest.raises(ValueError) as raised:  # noqa: PT011, the line is compared whole
        make()
    assert str(raised.value) == line
