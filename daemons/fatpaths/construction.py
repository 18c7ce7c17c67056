"""Constructions of layers.

They are made at random (FatPaths, listing 1), with little overlap (listing 2), or as in-trees
(ours); trees.py has those that layers are compared with.

Every construction takes the graph, its options, a generator of random numbers, and `accelerate`, a
compiler of functions over arrays.  It returns tables as layers.py has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from weft.daemons.fatpaths import in_trees, overlap, trees
from weft.daemons.fatpaths.layers import (
    UNSET,
    ArcFlags,
    Compiler,
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

ATTEMPTS = 1000


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
    search = overlap.PathSearch.of(graph, length)
    back, work, layers = graph.back(), accelerate(overlap.layer), [first]
    for _ in range(options.layers - 1):
        pairs = ranked_pairs(search, generator)
        work(search, pairs, most_paths)
        arcs = search.in_layer | search.in_layer[back]
        layers.append(with_fallback(next_hops(graph, arcs, generator), first))
    return np.stack(layers)


def ranked_pairs(search: overlap.PathSearch, generator: Generator) -> NDArray[np.int64]:
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
