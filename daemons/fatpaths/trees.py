"""Layers that are trees, with which FatPaths compares its own (appendix C).

They are those of PAST, of SPAIN and of k shortest paths.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from weft.daemons.fatpaths import spain
from weft.daemons.fatpaths.layers import (
    UNSET,
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

SPAINS_PATHS = 3  # of each router to a destination
NO_ROOM = -1
ROOM = 1 << 8  # routers of paths, and groups of paths, to begin with


def past_layers(
    graph: RouterArrays, options: LayerOptions, generator: Generator, accelerate: Compiler
) -> RouterTable:
    """Return PAST (Stephens et al., CoNEXT 2012) in its minimal variant.

    Each layer has for each destination the spanning tree of a breadth-first search from it, ties
    broken at random.

    Ours: PAST has one tree for each address.  Here a destination router has n of them, as if each
    belonged to one of its hosts.
    """
    return np.stack([first_layer(graph, generator) for _ in range(options.layers)])


def past_valiant_layers(
    graph: RouterArrays, options: LayerOptions, generator: Generator, accelerate: Compiler
) -> RouterTable:
    """Return PAST in its non-minimal variant (FatPaths, listing 5).

    Each layer but the first has for each destination the spanning tree of a breadth-first search
    from a random router, ties broken at random; paths follow the tree's links, up and then down.

    Ours: PAST has one tree for each address.  Here a destination router has n - 1 of them, as if
    each belonged to one of its hosts, and layer 0.
    """
    layers = [first_layer(graph, generator)]
    for _ in range(options.layers - 1):
        towards = next_hops(graph, everything(graph), generator)
        table = np.empty_like(towards)
        for t, root in enumerate(generator.integers(graph.routers, size=graph.routers).tolist()):
            table[t] = towards[root]
            u = t
            while u != root:  # routers above t in the tree send down to it
                above = towards[root, u]
                table[t, above] = u
                u = above
            table[t, t] = t
        layers.append(table)
    return np.stack(layers)


def spain_layers(
    graph: RouterArrays, options: LayerOptions, generator: Generator, accelerate: Compiler
) -> RouterTable:
    """Return SPAIN (listing 4).

    For each destination some paths from each router, as disjoint as can be, are coloured into
    trees; trees of all destinations are merged in random order while they have no cycle.

    Ours: SPAIN has as many layers as come of that, hundreds.  Of these, n - 1 are taken, each the
    one with the most links that no earlier one has, beside layer 0 with all links.
    """
    trees = np.concatenate(
        [coloured(graph, t, SPAINS_PATHS, generator, accelerate) for t in range(graph.routers)]
    )
    forests = spain.Forests(
        trees,
        generator.permutation(len(trees)),
        graph.arc_of(),
        np.empty(len(graph.peer), dtype=bool),
        np.empty(graph.routers, dtype=np.int64),
        np.empty(graph.routers, dtype=np.int64),
    )
    merge, merged = accelerate(spain.absorb), []
    while merge(forests):
        merged.append(forests.links.copy())
    uncovered = np.array(merged)
    layers = np.zeros((options.layers - 1, len(graph.peer)), dtype=bool)
    for layer in layers[: len(merged)]:
        layer[:] = merged[int(uncovered.sum(axis=1).argmax())]
        uncovered &= ~layer
    return tables(graph, list(layers), generator)


def coloured(
    graph: RouterArrays, t: int, paths: int, generator: Generator, accelerate: Compiler
) -> RouterTable:
    """Return the trees to `t`, shape (colours, routers).

    Neighbours and routers are in random order, as the listing leaves open which of equal paths is
    taken.
    """
    after = np.empty((graph.routers * paths, graph.routers), dtype=np.int32)
    peer = graph.peer[np.lexsort((generator.random(len(graph.peer)), graph.tail))]
    shuffled = RouterArrays(graph.start, peer)
    search = spain.LightestPaths(
        shuffled,
        shuffled.arc_of(),
        np.empty(len(peer), dtype=np.int64),
        np.empty((paths, graph.routers + 1), dtype=np.int64),
        np.empty(graph.routers, dtype=np.int64),
        np.empty(graph.routers, dtype=np.int64),
        np.empty(graph.routers, dtype=bool),
    )
    order = generator.permutation(graph.routers)
    return after[: accelerate(spain.colour_paths)(search, t, order, after)].copy()


def k_shortest_layers(
    graph: RouterArrays, options: LayerOptions, generator: Generator, accelerate: Compiler
) -> RouterTable:
    """Return the n shortest paths of each pair (Singla et al., NSDI 2012; appendix C-D).

    Those are left out that routes by destination cannot hold.

    Ours: k-shortest-path routing needs a route for each source.  Here each path goes into the first
    layer in which it goes along with those that are there, all pairs' second paths before any
    third; a path that fits into no layer is left out, and a router without a path in a layer takes
    layer 0's hop.
    """
    n, first = options.layers, first_layer(graph, generator)
    if graph.routers == 1:
        return np.stack([first] * n)
    layers = np.full((n, graph.routers, graph.routers), UNSET, dtype=np.int32)
    nodes, begin = k_shortest_paths(graph, n, generator, accelerate)
    work = accelerate(plant)
    for rank in range(1, n):
        work(layers[1:], nodes, begin[generator.permutation(len(begin)), rank : rank + 2])
    return np.stack([first, *(with_fallback(table, first) for table in layers[1:])])


def plant(layers: RouterTable, nodes: RouterTable, ranges: IntegerArray) -> None:
    """Put the paths nodes[begin:end] of each row (begin, end) of `ranges` into layers, in order.

    A path goes into the first layer that has no other path of its source and goes along with those
    that are there, or into none.
    """
    for row in range(len(ranges)):
        path = nodes[ranges[row, 0] : ranges[row, 1]]
        for layer in range(len(layers) if len(path) else 0):
            table = layers[layer, path[-1]]
            fits = table[path[0]] == UNSET
            for hop in range(len(path) - 1):
                after = table[path[hop]]
                fits &= (after == UNSET) | (after == path[hop + 1])
            if fits:
                for hop in range(len(path) - 1):
                    table[path[hop]] = path[hop + 1]
                break


class PathList(NamedTuple):
    """Paths of equal lengths, in groups.

    nodes: routers of all paths, from source to destination.
    groups: source, links, number and place of the paths that have as many.
    trial, nexts: scratch, routers + 1 numbers each.
    """

    nodes: RouterTable
    groups: IntegerArray
    trial: Any
    nexts: Any

    @classmethod
    def of(cls, size: int, trial: Any, nexts: Any) -> PathList:
        """Return room for `size` routers and as many groups."""
        return cls(np.empty(size, np.int32), np.empty((size, 4), np.int64), trial, nexts)


def k_shortest_paths(
    graph: RouterArrays, n: int, generator: Generator, accelerate: Compiler = as_it_is
) -> tuple[RouterTable, IntegerArray]:
    """Return the n shortest paths of every pair that enter no router twice.

    Of equally long ones they are any; there are fewer where a pair has not as many.

    Pairs are in order of destination, then of source.  Path r of pair p, as routers from source to
    destination, is nodes[begin[p, r] : begin[p, r + 1]], empty if there is none; `begin` has the
    shape (pairs, n + 1).
    """
    far: Any = distances(graph, everything(graph)).T.astype(int)
    trial: Any = np.zeros(graph.routers + 1, int)
    network = graph
    if accelerate is as_it_is:
        # numbers of lists are four times as fast to read and write as those of arrays
        far, trial = far.tolist(), trial.tolist()
        network = graph.as_lists()
    room = PathList.of(ROOM, trial, trial.copy())
    search, nodes, begins, base = accelerate(equal_paths), [], [], 0
    for t in range(graph.routers):
        while (groups := search(network, far[t], n, room)) == NO_ROOM:
            room = PathList.of(2 * len(room.nodes), room.trial, room.nexts)
        paths, ends = drawn(room, room.groups[:groups].tolist(), n, generator)
        nodes.append(paths)
        begins.append(base + ends)
        base += len(paths)
    return np.concatenate(nodes), np.concatenate(begins)


def drawn(
    room: PathList, groups: list[list[int]], n: int, generator: Generator
) -> tuple[RouterTable, IntegerArray]:
    """Return n of the paths of each source: their routers, and where they begin and end."""
    offsets, sizes, counts, last = [], [], [], UNSET
    for source, length, many, place in groups:
        if source != last:
            last = source
            counts.append(0)
        some = generator.permutation(many)[: n - counts[-1]]
        offsets.append(place + (length + 1) * some)
        sizes += [length + 1] * len(some)
        counts[-1] += len(some)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    nodes = room.nodes[np.repeat(np.concatenate(offsets) - ends[:-1], sizes) + np.arange(ends[-1])]
    first = np.cumsum(counts) - counts
    return nodes, ends[first[:, None] + np.minimum(np.arange(n + 1), np.array(counts)[:, None])]


def equal_paths(graph: RouterArrays, far: Any, n: int, room: PathList) -> int:
    """Write into `room` the paths from each router to the one from which all are `far`.

    They have its distance, then one link more and so on until there are n or more, and enter no
    router twice.  Returns the number of groups, NO_ROOM if they or the paths need more room.
    """
    used, number, routers = 0, 0, len(graph.start) - 1
    for s in range(routers):
        paths, length = 0, far[s]
        while far[s] and paths < n and length < routers:
            end = write_paths(graph, far, s, length, room, used)
            if end == NO_ROOM or number == len(room.groups):
                return NO_ROOM
            many = (end - used) // (length + 1)
            if many:
                group = room.groups[number]
                group[0] = s
                group[1] = length
                group[2] = many
                group[3] = used
                number += 1
            used, paths, length = end, paths + many, length + 1
    return number


def write_paths(
    graph: RouterArrays, far: Any, s: int, length: int, room: PathList, used: int
) -> int:
    """Write the paths of `length` links from `s` behind `used` numbers.

    Returns how many numbers are used then, or NO_ROOM.
    """
    trial, nexts, depth = room.trial, room.nexts, 0
    trial[0] = s
    nexts[0] = graph.start[s]
    while depth >= 0:
        if nexts[depth] == graph.start[trial[depth] + 1]:
            depth -= 1
            continue
        to, hops_left = graph.peer[nexts[depth]], length - depth - 1
        nexts[depth] += 1
        refused = far[to] > hops_left or (far[to] == 0) != (hops_left == 0)
        for earlier in range(depth):
            refused |= trial[earlier] == to
        if refused:
            continue
        trial[depth + 1] = to
        if hops_left:
            depth += 1
            nexts[depth] = graph.start[to]
            continue
        if used + length + 1 > len(room.nodes):
            return NO_ROOM
        for hop in range(length + 1):
            room.nodes[used + hop] = trial[hop]
        used += length + 1
    return used
