"""The parts of SPAIN, k shortest paths and in-trees, against networkx."""

import re
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest

from weft.daemons.fatpaths import construction, spain, trees
from weft.daemons.fatpaths.layers import (
    LayerOptions,
    RouterArrays,
    as_it_is,
    distinct_paths,
    path,
)
from weft.topologies import build

UNSET = -1


def rng(seed=0):
    return np.random.default_rng(seed)


def graph_of(spec):
    return RouterArrays.of(build(spec))


def plain(graph, weight=None):
    graph_of_layers = nx.DiGraph()
    weights = np.zeros(len(graph.peer)) if weight is None else weight
    graph_of_layers.add_weighted_edges_from(
        zip(graph.tail.tolist(), graph.peer.tolist(), weights.tolist(), strict=True)
    )
    return graph_of_layers


def integers(*shape):
    return np.empty(shape, dtype=np.int64)


# -- SPAIN


def test_spains_path_has_the_fewest_used_links_and_then_the_fewest():
    graph = graph_of("jellyfish:n=14,r=4,p=1,seed=3")
    routers, arc_of = graph.routers, graph.arc_of()
    for seed in range(40):
        uses = rng(seed).integers(0, 3, len(graph.peer))
        uses[graph.back()] = uses  # the same both ways
        uses = np.maximum(uses, uses[graph.back()])
        found = integers(routers + 1)
        src, dst = rng(seed).choice(routers, 2, replace=False).tolist()
        scratch = integers(routers), integers(routers), np.empty(routers, dtype=bool)
        search = spain.LightestPaths(graph, arc_of, uses, integers(1, routers + 1), *scratch)
        length = spain.lightest(search, src, dst, found)
        way = found[: length + 1].tolist()
        assert (way[0], way[-1]) == (dst, src)
        assert len(set(way)) == len(way)
        cost = sum(1000 * uses[arc_of[a, b]] + 1 for a, b in pairwise(way))
        assert cost == nx.shortest_path_length(
            plain(graph, 1000 * uses + 1), src, dst, weight="weight"
        )


@pytest.mark.parametrize("spec", ["slimfly:q=3", "hyperx:l=2,s=3", "dragonfly:p=1"])
def test_a_colour_of_spain_is_an_in_tree_and_all_paths_have_one(spec):
    graph, k = graph_of(spec), 3
    for t in range(graph.routers):
        coloured = trees.coloured(graph, t, k, rng(t), as_it_is)
        ways = {s: set() for s in range(graph.routers)}
        for after in coloured:
            for s in np.flatnonzero(after != UNSET).tolist():
                way = [s]
                while way[-1] != t:
                    way.append(int(after[way[-1]]))
                    assert len(way) <= graph.routers
                    assert way[-1] in graph.peer[graph.start[way[-2]] : graph.start[way[-2] + 1]]
                ways[s].add(tuple(way))
        disjoint = min(k, min(np.diff(graph.start)))
        assert all(len(found) >= disjoint for s, found in ways.items() if s != t)


def test_no_colour_is_needed_where_paths_go_together():
    star = RouterArrays(np.array([0, 3, 4, 5, 6]), np.array([1, 2, 3, 0, 0, 0]))
    coloured = trees.coloured(star, 0, 3, rng(), as_it_is)
    # and the search for a second path ended each time
    assert coloured.tolist() == [[UNSET, 0, 0, 0]]


@pytest.mark.parametrize("seed", range(5))
def test_trees_are_merged_as_long_as_there_is_no_circle(seed):
    graph = graph_of("slimfly:q=3")
    after = np.concatenate([trees.coloured(graph, t, 2, rng(seed), as_it_is) for t in range(5)])
    order, has = rng(seed).permutation(len(after)), np.empty(len(graph.peer), dtype=bool)
    left, sizes = order.copy(), []
    forests = spain.Forests(after, left, graph.arc_of(), has, integers(18), integers(18))
    while links := spain.absorb(forests):
        assert has.sum() == 2 * links
        assert (has == has[graph.back()]).all()
        assert nx.is_forest(nx.Graph(plain(graph).edge_subgraph(
            zip(graph.tail[has].tolist(), graph.peer[has].tolist(), strict=True)
        )))  # fmt: skip
        sizes.append(links)
    expected, waiting = [], [set(map(frozenset, enumerate_links(after[tree]))) for tree in order]
    while waiting:
        merged, later = waiting[0], []
        for links_of in waiting[1:]:
            together = merged | links_of
            if len(merged) < 17 and nx.is_forest(nx.Graph(map(tuple, together))):
                merged = together
            else:
                later.append(links_of)
        expected.append(len(merged))
        waiting = later
    assert sizes == expected


def enumerate_links(after):
    return [(u, to) for u, to in enumerate(after.tolist()) if to != UNSET]


def test_spains_first_forest_is_a_spanning_tree():
    graph = graph_of("slimfly:q=3")
    (table,) = trees.spain_layers(graph, LayerOptions(2), rng(), as_it_is)[1:]
    assert nx.is_tree(
        nx.Graph([(u, to) for t in range(18) for u, to in enumerate(table[t].tolist()) if u != to])
    )


# -- k shortest paths


@pytest.mark.parametrize(
    "spec", ["slimfly:q=3", "dragonfly:p=1", "jellyfish:n=14,r=4,p=1,seed=3", "complete:n=4,p=1"]
)
def test_k_shortest_paths_are_those_of_networkx(spec):
    graph = graph_of(spec)
    net = plain(graph)
    for n in (1, 4, 9):
        nodes, begin = trees.k_shortest_paths(graph, n, rng())
        pairs = [(s, t) for t in range(graph.routers) for s in range(graph.routers) if s != t]
        assert begin.shape == (len(pairs), n + 1)
        for (s, t), ends in list(zip(pairs, begin.tolist(), strict=True))[:: len(pairs) // 7]:
            every = [tuple(way) for way in nx.all_simple_paths(net, s, t, cutoff=6)]
            found = [tuple(nodes[a:b].tolist()) for a, b in pairwise(ends) if a < b]
            assert [len(way) for way in found] == sorted(map(len, every))[:n]
            assert len(set(found)) == len(found) == min(n, len(every))
            assert set(found) <= set(every)


def test_layers_of_k_shortest_paths_hold_them_as_far_as_they_go_along():
    """Paths have four links at the most; who has none in a layer goes one link to who has."""
    graph = graph_of("slimfly:q=5")
    layers = trees.k_shortest_layers(graph, LayerOptions(9), rng(), as_it_is)
    lengths = [
        len(path(table, s, t)) - 1
        for table in layers
        for s in range(50)
        for t in range(50)
        if s != t
    ]
    assert set(lengths) <= {1, 2, 3, 4, 5}
    assert lengths.count(5) < 0.05 * len(lengths)
    many = distinct_paths(layers)
    assert many[~np.eye(50, dtype=bool)].mean() > 5
    assert (layers[0] >= 0).all()


def test_one_router_has_layers_without_paths():
    layers = trees.k_shortest_layers(graph_of("star:n=3"), LayerOptions(4), rng(), as_it_is)
    assert layers.tolist() == [[[0]]] * 4


def test_a_path_that_goes_along_with_nothing_is_planted_nowhere():
    layers = np.full((2, 5, 5), UNSET, dtype=np.int32)

    def plant(*paths):
        ends = np.cumsum([0, *map(len, paths)])
        ranges = np.stack([ends[:-1], ends[1:]], axis=1)
        trees.plant(layers, np.concatenate(paths).astype(np.int32), ranges)

    # the second goes along; in layer 0 router 0 goes by 1, so the third is in layer 1
    plant((0, 1, 4), (2, 1, 4), (3, 0, 2, 4))
    assert layers[:, 4].tolist() == [[1, 4, 1, UNSET, UNSET], [2, UNSET, 4, 0, UNSET]]
    before = layers.copy()
    # router 0 has a path in both layers
    plant((0, 3, 4), (0, 1, 4), ())
    assert (layers == before).all()


@pytest.mark.parametrize("number", [1, 64])
@pytest.mark.parametrize("rho", [0.001, 1.0])
def test_there_are_up_to_64_layers_of_some_or_all_links(number, rho):
    construction.check(LayerOptions(number, rho))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (LayerOptions(0), "1 .. 64 layers, got 0"),
        (LayerOptions(65), "1 .. 64 layers, got 65"),
        (LayerOptions(9, 0.0), "rho must lie in (0, 1], got 0.0"),
        (LayerOptions(9, 1.001), "rho must lie in (0, 1], got 1.001"),
    ],
)
def test_no_other_layers_are_made(options, reason):
    with pytest.raises(ValueError, match=re.escape(reason) + "$"):
        construction.check(options)
