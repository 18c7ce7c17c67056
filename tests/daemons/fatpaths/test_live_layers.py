"""Layers while links are dead: no loop, nothing lost that can be reached, and no agreement needed
for a detour."""

import random
from itertools import pairwise, product

import networkx as nx
import numpy as np
import pytest

from weft.daemons.fatpaths import construction
from weft.daemons.fatpaths.layers import LayerOptions, RouterArrays, path
from weft.daemons.fatpaths.live_layers import LayerTables, packed
from weft.daemons.routing import shortest
from weft.topologies import build

SPECS = ["slimfly:q=3", "slimfly:q=5", "dragonfly:p=2", "jellyfish:n=14,r=4,p=1,seed=3"]
CONSTRUCTIONS = ["random", "intree", "past-valiant"]


def layers_of(spec, name="random", n=4):
    """The graph, its tables as made, and as daemons have them."""
    graph = RouterArrays.of(build(spec))
    layers_ = construction.layers_of(name, graph, LayerOptions(n), np.random.default_rng(1))
    return graph, layers_, LayerTables(packed(layers_, 30))


def live_neighbours(graph, dead):
    """By router, those to which it has a live link."""
    live = [set() for _ in range(graph.routers)]
    for a, b in zip(graph.tail.tolist(), graph.peer.tolist(), strict=True):
        if (min(a, b), max(a, b)) not in dead:
            live[a].add(b)
    return live


def links(graph):
    return [(a, b) for a, b in zip(graph.tail.tolist(), graph.peer.tolist(), strict=True) if a < b]


def hops(tables, live):
    """hops[layer, t][u], by the rules, None where there is none."""
    adjacency = {u: sorted(near) for u, near in enumerate(live)}
    nearer = [shortest.next_hops(adjacency, u) for u in adjacency]
    routers = range(tables.routers)
    return {
        (layer, t): [
            None if u == t else tables.live_hop(layer, t, u, live, nearer[u].get(t, ()))
            for u in routers
        ]
        for layer, t in product(range(tables.layers), routers)
    }


def walk(found, src, dst):
    """The routers that a packet visits; the last is `dst` unless it is lost.  A loop fails the
    test."""
    way = [src]
    while way[-1] != dst and found[way[-1]] is not None:
        way.append(found[way[-1]])
        assert len(set(way)) == len(way), f"loop {way}"
    return way


@pytest.mark.parametrize("name", CONSTRUCTIONS)
@pytest.mark.parametrize("spec", SPECS)
def test_while_all_live_every_hop_is_the_layers_own(spec, name):
    graph, layers_, tables = layers_of(spec, name)
    assert (tables.first, tables.routers, tables.layers) == (30, graph.routers, 4)
    live = live_neighbours(graph, ())
    for (layer, t), found in hops(tables, live).items():
        for u in range(graph.routers):
            if u != t:
                assert found[u] == layers_[layer, t, u] == tables.hop(layer, t, u)
                assert tables.intact(layer, t, u, live) == len(path(layers_[layer], u, t)) - 1


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("spec", SPECS[:2])
@pytest.mark.slow
def test_whatever_dies_what_can_be_reached_is_reached_without_a_loop(spec, seed):
    draw = random.Random(seed)
    graph, _, tables = layers_of(spec, CONSTRUCTIONS[seed % 3])
    dead = set(draw.sample(links(graph), draw.choice([1, 2, 5, len(links(graph)) // 2])))
    live = live_neighbours(graph, dead)
    part = nx.Graph([(a, b) for a, near in enumerate(live) for b in near])
    part.add_nodes_from(range(graph.routers))
    for (_, t), found in hops(tables, live).items():
        for src in range(graph.routers):
            way = walk(found, src, t)
            assert (way[-1] == t) == nx.has_path(part, src, t)
            assert all(b in live[a] for a, b in pairwise(way))


@pytest.mark.parametrize("spec", SPECS)
def test_who_has_not_heard_of_a_dead_link_takes_part_in_no_loop(spec):
    """At first only the two routers at the link know that it is dead, and the others are told one
    by one; wherever every router that knows has an intact path or a detour."""
    draw = random.Random(1)
    graph, _, tables = layers_of(spec)
    for a, b in draw.sample(links(graph), 4):
        live = live_neighbours(graph, {(a, b)})
        before, after = hops(tables, live_neighbours(graph, ())), hops(tables, live)
        bare = {
            (layer, t)
            for layer, t in after
            for u in range(graph.routers)
            if u != t
            and tables.intact(layer, t, u, live) < 0
            and tables.detour(layer, t, u, live) is None
        }
        assert len(bare) < len(after) / 2
        told = [u for u in range(graph.routers) if u not in (a, b)]
        draw.shuffle(told)
        for count in (0, 1, len(told) // 2, len(told)):
            knows = {a, b, *told[:count]}
            for (layer, t), new in after.items():
                if (layer, t) in bare:
                    continue
                mixed = [
                    new[u] if u in knows else before[layer, t][u] for u in range(graph.routers)
                ]
                assert all(walk(mixed, src, t)[-1] == t for src in range(graph.routers))


def test_a_detour_is_the_neighbour_whose_intact_path_is_shortest():
    graph, _, tables = layers_of("slimfly:q=5")
    layer, t, u = 1, 7, 30
    (a, b), *_ = tables.links(layer, t, u)
    live = live_neighbours(graph, {(min(a, b), max(a, b))})
    lengths = {v: tables.intact(layer, t, v, live) for v in live[u]}
    least = min(links for links in lengths.values() if links >= 0)
    assert lengths[tables.detour(layer, t, u, live)] == least
    assert tables.intact(layer, t, u, live) == -1


def test_layers_that_break_together_take_different_detours():
    graph, _, tables = layers_of("slimfly:q=5", n=9)
    u = 0
    gone = next(b for a, b in links(graph) if a == u)
    live = live_neighbours(graph, {(u, gone)})
    broken = [
        (layer, t)
        for layer in range(9)
        for t in range(1, graph.routers)
        if tables.hop(layer, t, u) == gone
    ]
    taken = {tables.detour(layer, t, u, live) for layer, t in broken}
    assert len(broken) > 20
    assert taken - {None} == live[u]


def test_more_routers_than_sixteen_bits_count_are_refused():
    with pytest.raises(ValueError, match="at most 65536 routers"):
        packed(np.broadcast_to(np.zeros(1, dtype=np.int32), (1, 65537, 65537)), 0)
