"""Layers of almost minimal paths (Blach et al., NSDI 2024): the routing of a Slim Fly installation.

They call it LNMP.  The rules are those of its subnet manager, github.com/spcl/opensm.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from weft.daemons.fatpaths.layers import (
    UNSET,
    Compiler,
    IntegerArray,
    LayerOptions,
    RouterArrays,
    RouterTable,
    distances,
    everything,
    first_layer,
    with_fallback,
)

NO_PATH = 1e18


class DetourSearch(NamedTuple):
    """State of all layers.

    arc_of: the arc from any router to any neighbour, shape (routers, routers).
    weight: of each arc, the routers whose paths in layers 1 .. cross it, over destinations.
    path_count: layers in which a pair has a path of its own, shape (routers t, routers s).
    path, best: routers of a path that is tried, and of the lightest.
    nexts, ends, weights: of each hop of it the next arc and the last, and the weight up to it.
    """

    graph: RouterArrays
    arc_of: RouterTable
    weight: NDArray[np.float64]
    path_count: IntegerArray
    path: IntegerArray
    best: IntegerArray
    nexts: IntegerArray
    ends: IntegerArray
    weights: NDArray[np.float64]

    @classmethod
    def of(cls, graph: RouterArrays, most_links: int) -> DetourSearch:
        """Return a search for paths of at most `most_links` links, without earlier paths."""
        path, best, nexts, ends = np.zeros((4, most_links + 1), dtype=np.int64)
        return cls(
            graph=graph,
            arc_of=graph.arc_of(),
            weight=np.zeros(len(graph.peer)),
            path_count=np.zeros((graph.routers, graph.routers), dtype=np.int64),
            path=path,
            best=best,
            nexts=nexts,
            ends=ends,
            weights=np.zeros(most_links + 1),
        )


def lnmp_layers(
    graph: RouterArrays, options: LayerOptions, generator: Generator, accelerate: Compiler
) -> RouterTable:
    """Return layers whose paths have D to D + `extra_links` links, the subnet manager's default."""
    return layers_of_paths(graph, options, generator, accelerate, 0)


def longer_layers(
    graph: RouterArrays, options: LayerOptions, generator: Generator, accelerate: Compiler
) -> RouterTable:
    """Return layers whose paths have D + `extra_links` links, none fewer."""
    return layers_of_paths(graph, options, generator, accelerate, options.extra_links)


def layers_of_paths(
    graph: RouterArrays,
    options: LayerOptions,
    generator: Generator,
    accelerate: Compiler,
    least_extra_links: int,
) -> RouterTable:
    """Return layers of almost minimal paths.

    In each layer but the first every pair, those first that have such paths in the fewest layers,
    takes the lightest path that goes along with what the layer has for its destination.  Paths have
    D + `least_extra_links` to D + `extra_links` links.  The weight of a link is the number of
    routers whose paths cross it, over all layers and destinations.

    Ours: a destination is a router, where theirs are ports of hosts.  Who finds no path takes layer
    0's hop, where theirs completes a layer with the shortest paths that go along with it.
    """
    first = first_layer(graph, generator)
    diameter = int(distances(graph, everything(graph)).max())
    search = DetourSearch.of(graph, diameter + options.extra_links)
    work, layers = accelerate(fill), [first]
    t, s = np.nonzero(~np.eye(graph.routers, dtype=bool))
    for _ in range(options.layers - 1):
        table = np.full(first.shape, UNSET, dtype=np.int32)
        np.fill_diagonal(table, np.arange(graph.routers))
        order = np.lexsort((generator.random(len(t)), search.path_count[t, s]))
        work(search, table, np.stack([s, t], axis=1)[order], diameter + least_extra_links)
        layers.append(with_fallback(table, first))
    return np.stack(layers)


def fill(search: DetourSearch, table: RouterTable, pairs: IntegerArray, least_links: int) -> None:
    """Add to a layer's `table` the paths of `pairs`, rows (source, destination), in order."""
    for row in range(len(pairs)):
        t = pairs[row, 1]
        links = lightest(search, table[t], pairs[row, 0], t, least_links)
        new = 0
        for hop in range(links):
            u, v = search.best[hop], search.best[hop + 1]
            if table[t, u] == UNSET:
                new += 1
                search.path_count[t, u] += links - hop >= least_links
                table[t, u] = v
            search.weight[search.arc_of[u, v]] += new


def lightest(search: DetourSearch, after: RouterTable, s: int, t: int, least_links: int) -> int:
    """Search the path from `s` to `t` whose links weigh the least, and return its links.

    It has `least_links` or more, enters no router twice and goes on as `after`, the hops to `t`,
    has it.  Of equal ones it is the shortest.  Without a path the result is 0.
    """
    path, nexts, weights, most_links = search.path, search.nexts, search.weights, len(search.path)
    links, least, depth = 0, NO_PATH, 0
    enter(search, after, 0, s, 0.0)
    while depth >= 0:
        arc = nexts[depth]
        if arc == search.ends[depth]:
            depth -= 1
            continue
        nexts[depth] += 1
        v, weight, hops = search.graph.peer[arc], weights[depth] + search.weight[arc], depth + 1
        if weight > least or hops == most_links or entered(path, hops, v):
            continue
        if v != t:
            depth = hops
            enter(search, after, depth, v, weight)
        elif hops >= least_links and (weight < least or hops < links):
            links, least = hops, weight
            path[hops] = t
            copy(path, search.best)
    return links


def copy(path: IntegerArray, best: IntegerArray) -> None:
    """Copy `path` to `best`; a slice would allocate, which compiled code may not."""
    for hop in range(len(path)):
        best[hop] = path[hop]


def enter(search: DetourSearch, after: RouterTable, hop: int, u: int, weight: float) -> None:
    """Let the path that is tried go to `u`, and on over all links, or over the one it must.

    weight: of its links up to `u`.
    """
    search.path[hop] = u
    search.weights[hop] = weight
    bound = after[u] != UNSET
    arc = search.arc_of[u, after[u]] if bound else search.graph.start[u]
    search.nexts[hop] = arc
    search.ends[hop] = arc + 1 if bound else search.graph.start[u + 1]


def entered(path: IntegerArray, hops: int, u: int) -> bool:
    """Return True if `u` is among the first `hops` routers of `path`."""
    is_there = False
    for hop in range(hops):
        is_there |= path[hop] == u
    return is_there
