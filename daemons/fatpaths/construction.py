"""Constructions of layers.

They are made at random (FatPaths, listing 1), with little overlap (listing 2:
paths of a given length that share few links with earlier ones), or as in-trees
(ours); trees.py and almost_minimal.py have those that layers are compared with.

Every construction takes the graph, its options, a generator of random numbers, and `accelerate`, a
compiler of functions over arrays.  It returns tables as layers.py has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from weft.daemons.fatpaths import almost_minimal, trees
from weft.daemons.fatpaths.layers import (
    UNSET,
    ArcFlags,
    Compiler,
    IntegerArray,
    LayerOptions,
    RouterArrays,
    RouterTable,
    as_it_is,
    distances,
    everything,
    first_layer,
    next_hops,
    tables,
    with_fallback,
)

Numbers = NDArray[np.float64]

NOWHERE = 1e18
ATTEMPTS = 1000


class PathSearch(NamedTuple):
    """State of a layer.

    available: arcs that paths may take; they lead from lower ranks to higher ones.
    in_layer: the layer's arcs.
    weight: of each arc, how much paths of all layers cross it.
    path_count: paths of each pair in all layers.
    open_pairs: pairs that may still be served.
    cost, by, path: scratch; shape (length + 1, routers) twice, and length + 1.
    """

    graph: RouterArrays
    available: ArcFlags
    in_layer: ArcFlags
    weight: Numbers
    path_count: IntegerArray
    open_pairs: ArcFlags
    cost: Numbers
    by: IntegerArray
    path: IntegerArray

    @classmethod
    def of(cls, graph: RouterArrays, length: int) -> PathSearch:
        """Return a search for paths of `length` links, without earlier paths."""
        arcs, pairs, steps = len(graph.peer), (graph.routers, graph.routers), length + 1
        return cls(
            graph=graph,
            available=np.empty(arcs, dtype=bool),
            in_layer=np.empty(arcs, dtype=bool),
            weight=np.zeros(arcs),
            path_count=np.zeros(pairs, dtype=np.int64),
            open_pairs=np.empty(pairs, dtype=bool),
            cost=np.empty((steps, graph.routers)),
            by=np.empty((steps, graph.routers), dtype=np.int64),
            path=np.empty(steps, dtype=np.int64),
        )


def layer(search: PathSearch, pairs: IntegerArray, most_paths: int) -> None:
    """Add paths to a layer until it has `most_paths` or no pair is left.

    pairs: in the order in which they are served, those with the fewest paths first.
    """
    paths = 0
    for row in range(len(pairs)):
        if paths == most_paths:
            break
        u, v = pairs[row, 0], pairs[row, 1]
        if search.open_pairs[u, v]:
            search.open_pairs[u, v] = False
            if cheapest(search, u, v):
                paths += 1
                search.path_count[u, v] += 1
                add(search)


def add(search: PathSearch) -> None:
    """Add the path that was searched last; its routers take no short cuts in this layer."""
    graph, path = search.graph, search.path
    length = len(path) - 1
    for i in range(length):
        for j in range(i + 1, length + 1):
            if j - i < length:
                search.open_pairs[path[i], path[j]] = False
            for arc in range(graph.start[path[i]], graph.start[path[i] + 1]):
                if graph.peer[arc] == path[j]:
                    if j == i + 1:
                        search.in_layer[arc] = True
                        search.weight[arc] += j * (length + 1 - j)
                    else:
                        search.available[arc] = False


def cheapest(search: PathSearch, src: int, dst: int) -> bool:
    """Search the path from `src` to `dst` of this length whose weights sum to the least.

    No router comes twice, because of the ranks.  Returns False if there is none.
    """
    graph, cost, by, path = search.graph, search.cost, search.by, search.path
    length, routers = len(path) - 1, cost.shape[1]
    cost[:] = NOWHERE
    cost[0, src] = 0
    for hop in range(length):
        for u in range(routers):
            if cost[hop, u] < NOWHERE:
                for arc in range(graph.start[u], graph.start[u + 1]):
                    v, through = graph.peer[arc], cost[hop, u] + search.weight[arc]
                    if search.available[arc] and through < cost[hop + 1, v]:
                        cost[hop + 1, v] = through
                        by[hop + 1, v] = u
    if cost[length, dst] >= NOWHERE:
        return False
    path[length] = dst
    for hop in range(length, 0, -1):
        path[hop - 1] = by[hop, path[hop]]
    return True


def check(options: LayerOptions) -> None:
    """Raise ValueError unless there can be layers with these options."""
    if not 1 <= options.layers <= 64:
        raise ValueError(f"layered routing: there can be 1 .. 64 layers, got {options.layers}")
    if not 0 < options.rho <= 1:
        raise ValueError(f"layered routing: rho must lie in (0, 1], got {options.rho}")


def random_layers(
    graph: RouterArrays, options: LayerOptions, generator: Generator, accelerate: Compiler
) -> RouterTable:
    """Return layers of listing 1: floor(rho |E|) links, drawn until they join all routers.

    Ours: a link runs both ways in a layer; the listing's "pi(u) < pi(v)", "if needed", would leave
    every second ordered pair without a path.  ValueError where no draw is connected.
    """
    return tables(
        graph,
        [_random_layer(graph, options.rho, generator) for _ in range(options.layers - 1)],
        generator,
    )


def _random_layer(graph: RouterArrays, rho: float, generator: Generator) -> ArcFlags:
    back, upward = graph.back(), np.flatnonzero(graph.tail < graph.peer)
    for _ in range(ATTEMPTS):
        drawn = generator.choice(upward, int(rho * len(upward)), replace=False)
        arcs = np.zeros(len(graph.peer), dtype=bool)
        arcs[drawn] = True
        arcs[back[drawn]] = True
        if _joined(graph, arcs):
            return arcs
    raise ValueError(
        f"layered routing: no draw of {rho:g} of the links joins all routers; raise rho"
    )


def _joined(graph: RouterArrays, arcs: NDArray[np.bool_]) -> bool:
    reached = np.zeros(graph.routers, dtype=bool)
    reached[0] = True
    tail, peer = graph.tail[arcs], graph.peer[arcs]
    while True:
        before = reached.sum()
        reached[peer[reached[tail]]] = True
        if reached.sum() == before:
            return bool(before == graph.routers)


def overlap_layers(
    graph: RouterArrays, options: LayerOptions, generator: Generator, accelerate: Compiler
) -> RouterTable:
    """Return layers of listing 2: unions of paths that share little with earlier ones.

    Ours: all paths of a layer are equally long (V-B3: "we prefer paths one hop longer than
    minimal"); a path of d routers adds i (d - i) to the weight of its i-th link, counted from 1, as
    many sub-paths as cross it, where the listing's factor gives one end 0.  The links of a layer
    run both ways, as in listing 1: if they ran only as the paths do, from lower to higher ranks,
    every second ordered pair would have no path but layer 0's.
    """
    first = next_hops(graph, everything(graph), generator)
    length = int(distances(graph, everything(graph)).max()) + options.extra_links
    most_paths = max(1, round(options.paths * graph.routers))
    search = PathSearch.of(graph, length)
    back, work, layers = graph.back(), accelerate(layer), [first]
    for _ in range(options.layers - 1):
        pairs = ranked_pairs(search, generator)
        work(search, pairs, most_paths)
        arcs = search.in_layer | search.in_layer[back]
        layers.append(with_fallback(next_hops(graph, arcs, generator), first))
    return np.stack(layers)


def ranked_pairs(search: PathSearch, generator: Generator) -> NDArray[np.int64]:
    """Draw the ranks of a layer, and return its pairs, those with the fewest paths first."""
    tail, peer = search.graph.tail, search.graph.peer
    rank = generator.permutation(search.graph.routers)
    u, v = np.nonzero(rank[:, None] < rank)
    search.available[:] = rank[tail] < rank[peer]
    search.in_layer[:] = False
    search.open_pairs[:] = rank[:, None] < rank
    order = np.lexsort((generator.random(len(u)), search.path_count[u, v]))
    return np.stack([u, v], axis=1)[order]


def in_tree_layers(
    graph: RouterArrays, options: LayerOptions, generator: Generator, accelerate: Compiler
) -> RouterTable:
    """Return our layers: an in-tree for each layer and destination.

    A layer need not be a set of links: forwarding to one destination is free of loops if it is a
    tree to it, whatever each router picks.

    The pair whose layers coincide sets the throughput of the worst case, so the routers that have
    the fewest distinct paths to a destination choose first.  A router s without a hop in this
    layer's tree tries each neighbour u: the path from there on is u's in the tree or, if u has none
    yet, u's shortest one, which u is then bound to.  Of those that do not lead through s and are
    not too long, s takes the one that shares the fewest links with its earlier paths, then the one
    that binds the router least in need, then the one whose links carry the fewest paths.  A router
    that finds no new path waits.  At the end routers with few distinct paths may take one that is a
    link longer: shortest paths from a router's neighbours to an adjacent one often lead through the
    router itself.  The others take their path of layer 0.
    """
    layers = np.full((options.layers, graph.routers, graph.routers), UNSET, dtype=np.int32)
    layers[0] = first_layer(graph, generator)
    most_hops = int(distances(graph, everything(graph)).max()) + 1
    ties = np.argsort(generator.random((graph.routers, graph.routers)), axis=1)
    forest = Forest(
        graph=graph,
        arc_of=graph.arc_of(),
        tables=layers,
        load=np.zeros(len(graph.peer)),
        used=np.empty(len(graph.peer), dtype=np.int64),
        distinct=np.empty(graph.routers, dtype=np.int64),
    )
    accelerate(grow)(forest, most_hops, generator.permutation(graph.routers), ties)
    return layers


def layers_of(
    name: str,
    graph: RouterArrays,
    options: LayerOptions,
    generator: Generator,
    accelerate: Compiler = as_it_is,
) -> RouterTable:
    """Return the layers that the construction `name`, one of CONSTRUCTIONS, makes.

    Raises:
        ValueError: there are no such layers.
    """
    check(options)
    return CONSTRUCTIONS[name](graph, options, generator, accelerate)


CONSTRUCTIONS: Mapping[
    str, Callable[[RouterArrays, LayerOptions, Generator, Compiler], NDArray[np.int32]]
] = {
    "random": random_layers,
    "overlap": overlap_layers,
    "intree": in_tree_layers,
    "spain": trees.spain_layers,
    "past": trees.past_layers,
    "past-valiant": trees.past_valiant_layers,
    "k-shortest": trees.k_shortest_layers,
    "lnmp": almost_minimal.lnmp_layers,
    "lnmp-longer": almost_minimal.longer_layers,
}


FEW = 4  # distinct paths; routers with at most so many may take one a link longer
SHARED, BOUND = 1000.0, 1.0  # cost of a shared link and of a bound router, in mean loads of arcs
NO_PATH = 1e18


class Forest(NamedTuple):
    """The trees that grow.

    arc_of: the arc from any router to any neighbour, shape (routers, routers).
    tables: of all layers; layer 0 has shortest paths.
    load: of each arc, the paths over it.
    used: of each arc, the last (layer, destination, router) whose earlier paths have it.
    distinct: paths of each router to the present destination.
    """

    graph: RouterArrays
    arc_of: RouterTable
    tables: RouterTable
    load: NDArray[np.float64]
    used: IntegerArray
    distinct: IntegerArray


def grow(forest: Forest, most_hops: int, order: IntegerArray, ties: IntegerArray) -> None:
    """Fill layers 1 .. of the tables.

    Args:
        forest: with layer 0; all other hops UNSET.
        most_hops: of a path that is not shortest; one more for a router that has at most FEW
            distinct paths.
        order: of destinations.
        ties: for each destination the order of routers that have equally many paths.
    """
    forest.used[:] = UNSET
    for t in order:
        forest.distinct[:] = 1
        carry(forest, 0, t)
        for layer in range(1, len(forest.tables)):
            forest.tables[layer, t, t] = t
            serve(forest, most_hops, ties[t], layer, t)
            carry(forest, layer, t)


def serve(forest: Forest, most_hops: int, ties: IntegerArray, layer: int, t: int) -> None:
    """Let the routers choose their hops to `t` in this layer, those with the fewest paths first."""
    table, distinct, routers = forest.tables[layer, t], forest.distinct, len(ties)
    mean_load = forest.load.sum() / len(forest.load)
    for turn in range(1, layer + FEW + 1):
        longer = turn > layer
        paths = turn - layer if longer else turn
        for s in ties:
            if distinct[s] == paths and table[s] == UNSET:
                mark(forest, layer, t, s)
                u = best(forest, most_hops + longer, mean_load, layer, t, s)
                if u != UNSET:
                    bind(forest, layer, t, s, u)
                    distinct[s] += routers  # served in this layer, to be counted at its end
    for s in range(routers):
        if distinct[s] > routers:
            distinct[s] -= routers - 1
        if table[s] == UNSET:
            table[s] = forest.tables[0, t, s]


def carry(forest: Forest, layer: int, t: int) -> None:
    """Add the paths of this layer to `t` to the load of their arcs."""
    table = forest.tables[layer, t]
    for s in range(len(table)):
        u = s
        while u != t:
            forest.load[forest.arc_of[u, table[u]]] += 1
            u = table[u]


def mark(forest: Forest, layer: int, t: int, s: int) -> None:
    """Mark the arcs of the paths from `s` to `t` in the layers before this one.

    The mark is a number that only this router, destination and layer have.
    """
    routers = len(forest.distinct)
    for earlier in range(layer):
        u = s
        while u != t:
            after = forest.tables[earlier, t, u]
            forest.used[forest.arc_of[u, after]] = (layer * routers + t) * routers + s
            u = after


def best(forest: Forest, most_hops: int, mean_load: float, layer: int, t: int, s: int) -> int:
    """Return the neighbour through which `s` gets a new path to `t` at the least cost, or UNSET."""
    graph, routers = forest.graph, len(forest.distinct)
    own = (layer * routers + t) * routers + s
    cheapest, least = UNSET, NO_PATH
    for first in range(graph.start[s], graph.start[s + 1]):
        u, arc, hops, shared, cost = graph.peer[first], first, 1, 0, 0.0
        while True:
            repeated = forest.used[arc] == own
            shared += repeated
            cost += SHARED * repeated + forest.load[arc] / mean_load
            if u in (t, s) or hops == most_hops:
                break
            after = forest.tables[layer, t, u]
            if after == UNSET:
                after = forest.tables[0, t, u]
                cost += BOUND * (layer + 1 - forest.distinct[u] % routers)
            arc, u, hops = forest.arc_of[u, after], after, hops + 1
        if u == t and shared < hops and cost < least:
            cheapest, least = graph.peer[first], cost
    return cheapest


def bind(forest: Forest, layer: int, t: int, s: int, u: int) -> None:
    """Let `s` send to `u` on the way to `t`, and routers behind it along their shortest paths."""
    table, shortest = forest.tables[layer, t], forest.tables[0, t]
    table[s] = u
    while table[u] == UNSET:
        table[u] = shortest[u]
        u = shortest[u]
