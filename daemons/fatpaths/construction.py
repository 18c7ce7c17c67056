"""Constructions of layers.

They are made at random (FatPaths, listing 1), with little overlap (listing 2:
paths of a given length that share few links with earlier ones), or as in-trees
(ours); trees.py has those that layers are compared with.

Every construction takes the graph, its options, a generator of random numbers, and `accelerate`, a
compiler of functions over arrays.  It returns tables as layers.py has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from weft.daemons.fatpaths import in_trees, trees
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
    tree to it.  See in_trees.py.
    """
    layers = np.full((options.layers, graph.routers, graph.routers), UNSET, dtype=np.int32)
    layers[0] = first_layer(graph, generator)
    most_hops = int(distances(graph, everything(graph)).max()) + 1
    ties = np.argsort(generator.random((graph.routers, graph.routers)), axis=1)
    forest = in_trees.Forest(
        graph=graph,
        arc_of=graph.arc_of(),
        tables=layers,
        load=np.zeros(len(graph.peer)),
        used=np.empty(len(graph.peer), dtype=np.int64),
        distinct=np.empty(graph.routers, dtype=np.int64),
    )
    accelerate(in_trees.grow)(forest, most_hops, generator.permutation(graph.routers), ties)
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
}
