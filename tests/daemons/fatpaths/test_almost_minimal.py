"""Layers of almost minimal paths against all simple paths of networkx."""

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest

from weft.daemons.core.compiled import compiled
from weft.daemons.fatpaths import almost_minimal
from weft.daemons.fatpaths.construction import layers_of
from weft.daemons.fatpaths.layers import (
    UNSET,
    LayerOptions,
    RouterArrays,
    distances,
    distinct_paths,
    everything,
    path,
)
from weft.topologies import build


def graph_of(spec):
    return RouterArrays.of(build(spec))


def weight_of(search, way):
    return sum(search.weight[search.arc_of[u, v]] for u, v in pairwise(way))


@pytest.mark.parametrize("spec", ["slimfly:q=3", "dragonfly:p=1", "jellyfish:n=14,r=4,p=1,seed=3"])
@pytest.mark.parametrize("least", [1, 2, 3])
def test_the_path_is_the_lightest_that_goes_along_with_the_layer(spec, least):
    graph, rng = graph_of(spec), np.random.default_rng(least)
    net = nx.DiGraph(zip(graph.tail.tolist(), graph.peer.tolist(), strict=True))
    search = almost_minimal.DetourSearch.of(graph, 4)
    none = 0
    for _ in range(60):
        search.weight[:] = rng.integers(0, 4, len(graph.peer))
        s, t = rng.choice(graph.routers, 2, replace=False).tolist()
        after = np.full(graph.routers, UNSET)
        for u in rng.choice(graph.routers, 4, replace=False).tolist():
            after[u] = rng.choice(graph.peer[graph.start[u] : graph.start[u + 1]])
        along = [
            way
            for way in nx.all_simple_paths(net, s, t, cutoff=4)
            if len(way) > least and all(after[u] in (UNSET, v) for u, v in pairwise(way))
        ]
        links = almost_minimal.lightest(search, after, s, t, least)
        none += not along
        assert bool(links) == bool(along)
        if along:
            best = search.best[: links + 1].tolist()
            assert best in along
            assert weight_of(search, best) == min(weight_of(search, way) for way in along)
            equal = [way for way in along if weight_of(search, way) == weight_of(search, best)]
            assert links == min(map(len, equal)) - 1
    assert 0 < none < 60


def test_a_layer_gets_a_path_and_its_links_the_routers_that_cross_them():
    """On a ring of five, the way round has three links from a router two links away."""
    ends = [(u, (u + by) % 5) for u in range(5) for by in (1, 4)]
    graph = RouterArrays(np.arange(0, 11, 2), np.array([v for _, v in sorted(ends)]))
    search = almost_minimal.DetourSearch.of(graph, 3)
    table = np.full((5, 5), UNSET, dtype=np.int32)
    np.fill_diagonal(table, np.arange(5))
    almost_minimal.fill(search, table, np.array([[2, 0]]), 3)
    assert table[0].tolist() == [0, UNSET, 3, 4, 0]
    crossed = {(u, v): search.weight[search.arc_of[u, v]] for u, v in ends}
    # router 2 crosses the first link, router 3 joins it on the second, router 4 on the third
    assert {arc: count for arc, count in crossed.items() if count} == {
        (2, 3): 1, (3, 4): 2, (4, 0): 3,
    }  # fmt: skip
    # the sub-paths of one and two links are too short to count
    assert np.argwhere(search.path_count).tolist() == [[0, 2]]
    # router 1's way round would go by router 2, and have four links
    almost_minimal.fill(search, table, np.array([[1, 0]]), 3)
    assert table[0, 1] == UNSET
    # router 3 is bound; its own path of two links is there already
    almost_minimal.fill(search, table, np.array([[3, 0]]), 2)
    assert search.path_count.sum() == 1


@pytest.mark.parametrize("name", ["lnmp", "lnmp-longer"])
@pytest.mark.parametrize("spec", ["slimfly:q=4", "dragonfly:p=2", "hyperx:l=2,s=4", "fattree:k=4"])
def test_layers_have_no_loops_and_begin_with_shortest_paths(name, spec):
    graph = graph_of(spec)
    far = distances(graph, everything(graph))
    layers = layers_of(name, graph, LayerOptions(3), np.random.default_rng(0))
    for s in range(graph.routers):
        for t in range(graph.routers):
            links = [len(path(table, s, t)) - 1 for table in layers]
            assert links[0] == far[s, t]
    assert (
        layers == layers_of(name, graph, LayerOptions(3), np.random.default_rng(0), compiled)
    ).all()


def test_paths_of_three_links_give_adjacent_routers_of_the_installation_one_path():
    """Slim Fly with q = 5 has girth 5: adjacent routers have no path of two or three links.

    All others have one path of two links and six of three.
    """
    graph = graph_of("slimfly:q=5")
    far = distances(graph, everything(graph))
    layers = layers_of("lnmp-longer", graph, LayerOptions(16), np.random.default_rng(0), compiled)
    links = {
        (int(far[s, t]), len(path(table, s, t)) - 1)
        for table in layers
        for s in range(50)
        for t in range(50)
    }
    assert links == {(0, 0), (1, 1), (2, 2), (2, 3)}
    many = distinct_paths(layers)
    assert (many[far == 1] == 1).all()
    assert 3 <= many[far == 2].min() <= many[far == 2].max() <= 7


def test_pairs_with_the_fewest_paths_come_first():
    """Pairs in random order would leave one of 17 with its shortest path alone."""
    graph = graph_of("slimfly:q=5")
    far = distances(graph, everything(graph))
    many = distinct_paths(
        layers_of("lnmp-longer", graph, LayerOptions(4), np.random.default_rng(0), compiled)
    )
    assert (many[far == 2] == 1).mean() < 0.01


def test_crossed_links_are_avoided():
    """Paths that are not weighed would put twice the mean on some link."""
    graph = graph_of("slimfly:q=5")
    layers = layers_of("lnmp-longer", graph, LayerOptions(4), np.random.default_rng(0), compiled)
    crossed = np.zeros((50, 50), dtype=int)
    for table in layers:
        for s in range(50):
            for t in range(50):
                for u, v in pairwise(path(table, s, t)):
                    crossed[u, v] += 1
    assert crossed.max() < 1.2 * crossed[crossed > 0].mean()
