"""Layers that are trees, with which FatPaths compares its own: PAST, SPAIN and k shortest paths
(appendix C).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.daemons.fatpaths import spain
from weft.daemons.fatpaths.layers import (
    RouterArrays,
    as_it_is,
    distances,
    everything,
    next_hops,
    tables,
    with_fallback,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.random import Generator
    from numpy.typing import NDArray

    from weft.daemons.fatpaths.layers import Compiler

    Integers = Any  # an array or a list


UNSET = spain.UNSET
NO_ROOM = -1
ROOM = 1 << 8  # routers of paths, and groups of paths, to begin with


def past_layers(graph: RouterArrays, n: int, generator: Generator) -> NDArray[np.int32]:
    """PAST (Stephens et al., CoNEXT 2012) in its minimal variant: for each layer and each
    destination the spanning tree of a breadth-first search from it, ties broken at random.

    Ours: PAST has one tree for each address.  Here a destination router has n of them, as if each
    belonged to one of its hosts.
    """
    import numpy as np

    return np.stack([connected(next_hops(graph, everything(graph), generator)) for _ in range(n)])


def connected(table: NDArray[np.int32]) -> NDArray[np.int32]:
    """`table`; ValueError if it has no path for some pair."""
    if (table < 0).any():
        raise ValueError("layered routing: the routers are not connected")
    return table


def past_valiant_layers(graph: RouterArrays, n: int, generator: Generator) -> NDArray[np.int32]:
    """PAST (Stephens et al., CoNEXT 2012) in its non-minimal variant (FatPaths, listing 5): for
    each layer but the first and each destination the spanning tree of a breadth-first search from a
    random router, ties broken at random; paths follow the tree's links, up and then down.

    Ours: PAST has one tree for each address.  Here a destination router has n - 1 of them, as if
    each belonged to one of its hosts, and layer 0.
    """
    import numpy as np

    first = connected(next_hops(graph, everything(graph), generator))
    found = [first]
    for _ in range(n - 1):
        towards = next_hops(graph, everything(graph), generator)
        table = np.empty_like(first)
        for t, root in enumerate(generator.integers(graph.routers, size=graph.routers).tolist()):
            table[t] = towards[root]
            at = t
            while at != root:  # who is above t in the tree sends down to it
                above = towards[root, at]
                table[t, above] = at
                at = above
            table[t, t] = t
        found.append(table)
    return np.stack(found)


def spain_layers(
    graph: RouterArrays,
    n: int,
    generator: Generator,
    *,
    paths: int = 3,
    accelerate: Compiler = as_it_is,
) -> NDArray[np.int32]:
    """SPAIN (listing 4): for each destination `paths` paths from each router, as disjoint as can
    be, coloured into trees, and trees of all destinations merged in random order while they have no
    circle.

    Ours: SPAIN has as many layers as come of that, hundreds.  Of these, n - 1 are taken, each the
    one with the most links that no earlier one has, beside layer 0 with all links.
    """
    import numpy as np

    trees = np.concatenate(
        [_coloured(graph, t, paths, generator, accelerate) for t in range(graph.routers)]
    )
    order = generator.permutation(len(trees))
    arc_of, has = graph.arc_of(), np.empty(len(graph.peer), dtype=bool)
    root, trial = np.empty((2, graph.routers), dtype=np.int64)
    merge = accelerate(spain.absorb)
    forests = []
    while merge(trees, order, arc_of, has, root, trial):
        forests.append(has.copy())
    left, covered, chosen = np.array(forests), np.zeros(len(graph.peer), dtype=bool), []
    for _ in range(min(n - 1, len(forests))):
        best = int((left & ~covered).sum(axis=1).argmax())
        chosen.append(left[best].copy())
        covered |= left[best]
        left[best] = False
    chosen += [np.zeros(len(graph.peer), dtype=bool)] * (n - 1 - len(chosen))
    return tables(graph, chosen, generator)


def _coloured(
    graph: RouterArrays, t: int, paths: int, generator: Generator, accelerate: Compiler
) -> NDArray[np.int32]:
    """The trees to `t`, shape (colours, routers).

    Neighbours and routers in random order, as the listing leaves open which of equal paths is
    found.
    """
    import numpy as np

    after = np.empty((graph.routers * paths, graph.routers), dtype=np.int32)
    peer = graph.peer[np.lexsort((generator.random(len(graph.peer)), graph.tail))]
    shuffled = RouterArrays(graph.start, peer)
    integers = (np.empty(len(peer), dtype=np.int64), *np.empty((2, graph.routers), dtype=np.int64))
    colours = accelerate(spain.colour_paths)(
        *(graph.start, peer, shuffled.arc_of(), t, generator.permutation(graph.routers), after),
        *(
            np.empty((paths, graph.routers + 1), dtype=np.int64),
            *integers,
            np.empty(graph.routers, dtype=bool),
        ),
    )
    return after[:colours].copy()


def k_shortest_layers(
    graph: RouterArrays, n: int, generator: Generator, *, accelerate: Compiler = as_it_is
) -> NDArray[np.int32]:
    """The n shortest paths of each pair (Singla et al., NSDI 2012; appendix C-D), as far as routes
    by destination hold them.

    Ours: k-shortest-path routing needs a route for each source.  Here each path goes into the first
    layer in which it goes along with those that are there, all pairs' second paths before any
    third; a path that fits into no layer is left out, and a router without a path in a layer takes
    layer 0's hop.
    """
    import numpy as np

    first = connected(next_hops(graph, everything(graph), generator))
    if graph.routers == 1:
        return np.stack([first] * n)
    layers = np.full((n, graph.routers, graph.routers), UNSET, dtype=np.int32)
    layers[0] = first
    nodes, begin = k_shortest_paths(graph, n, generator, accelerate=accelerate)
    work = accelerate(plant_each)
    for rank in range(1, n):
        work(layers[1:], nodes, begin[generator.permutation(len(begin)), rank : rank + 2])
    return np.stack([first, *(with_fallback(table, first) for table in layers[1:])])


def plant(layers: NDArray[np.int32], path: Sequence[int]) -> bool:
    """Put `path`, routers from source to destination, into the first of `layers`, shape (layers,
    routers t, routers u), that has no other path of its source and goes along with those that are
    there; whether there was one.
    """
    import numpy as np

    return put(layers, np.array(path, dtype=np.int32), 0, len(path))


def plant_each(
    layers: NDArray[np.int32], nodes: NDArray[np.int32], ranges: NDArray[np.int64]
) -> None:
    """plant() for nodes[begin:end] of each row (begin, end) of `ranges`, in order, unless it is
    empty.
    """
    for row in range(len(ranges)):
        if ranges[row, 0] < ranges[row, 1]:
            put(layers, nodes, ranges[row, 0], ranges[row, 1])


def put(layers: NDArray[np.int32], nodes: NDArray[np.int32], begin: int, end: int) -> bool:
    """plant() for nodes[begin:end]."""
    t = nodes[end - 1]
    for layer in range(len(layers)):
        fits = layers[layer, t, nodes[begin]] == UNSET
        for hop in range(begin, end - 1):
            has = layers[layer, t, nodes[hop]]
            fits &= (has == UNSET) | (has == nodes[hop + 1])
        if fits:
            for hop in range(begin, end - 1):
                layers[layer, t, nodes[hop]] = nodes[hop + 1]
            return True
    return False


def k_shortest_paths(
    graph: RouterArrays, n: int, generator: Generator, *, accelerate: Compiler = as_it_is
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The n shortest paths of every pair that enter no router twice; of equally long ones any, and
    fewer where there are not as many.

    Pairs are in order of destination, then of source.  Path r of pair p, as routers from source to
    destination, is nodes[begin[p, r] : begin[p, r + 1]], empty if there is none; `begin` has the
    shape (pairs, n + 1).
    """
    import numpy as np

    search, far = accelerate(equal_paths), distances(graph, everything(graph)).T.astype(np.int64)
    scratch = np.empty((2, graph.routers + 1), dtype=np.int64)
    read: list[Integers] = [graph.start, graph.peer, far, scratch]
    # numbers of lists are four times as fast to read and write as those of arrays
    if accelerate is as_it_is:
        read = [each.tolist() for each in read]
    start, peer, towards, (trial, nexts) = read
    room, groups = np.empty(ROOM, dtype=np.int32), np.empty((ROOM, 4), dtype=np.int64)
    nodes, begins, base = [], [], 0
    for t in range(graph.routers):
        while (number := search(start, peer, towards[t], n, room, groups, trial, nexts)) == NO_ROOM:
            room, groups = (
                np.empty(2 * len(room), dtype=np.int32),
                np.empty((2 * len(groups), 4), dtype=np.int64),
            )
        offsets, sizes, counts = _drawn(groups[:number].tolist(), n, generator)
        ends = np.concatenate([[0], np.cumsum(sizes)])
        nodes.append(room[np.repeat(offsets - ends[:-1], sizes) + np.arange(ends[-1])])
        first = np.cumsum(counts) - counts
        begins.append(base + ends[first[:, None] + np.minimum(np.arange(n + 1), counts[:, None])])
        base += int(ends[-1])
    return np.concatenate(nodes), np.concatenate(begins)


def _drawn(groups: list[list[int]], n: int, generator: Generator) -> tuple[NDArray[np.int64], ...]:
    """Of `groups` of equally long paths, as equal_paths() writes them, n for each source: where
    each path is, how many routers it has, and how many of these there are for each source.
    """
    import numpy as np

    offsets, sizes, counts, last = [], [], [], UNSET
    for source, length, many, at in groups:
        if source != last:
            last = source
            counts.append(0)
        some = generator.permutation(many)[: n - counts[-1]]
        offsets.append(at + (length + 1) * some)
        sizes += [length + 1] * len(some)
        counts[-1] += len(some)
    return np.concatenate(offsets), np.array(sizes), np.array(counts)


def equal_paths(
    start: Integers,
    peer: Integers,
    far: Integers,
    n: int,
    room: NDArray[np.int32],
    groups: NDArray[np.int64],
    trial: Integers,
    nexts: Integers,
) -> int:
    """Write into `room` the paths from each router to the one from which all are `far`, of its
    distance, of one link more and so on until there are n or more; they enter no router twice.

    groups: filled: source, links, number and place of the paths that have as many; how many groups
    there are, NO_ROOM if they or the paths need more.  trial, nexts: scratch, routers + 1 numbers
    each.
    """
    used, number = 0, 0
    for s in range(len(start) - 1):
        found, length = 0, far[s]
        while far[s] and found < n and length < len(start) - 1:
            before, many, depth = used, 0, 0
            trial[0], nexts[0] = s, start[s]
            while depth >= 0:
                if nexts[depth] == start[trial[depth] + 1]:
                    depth -= 1
                    continue
                to, left = peer[nexts[depth]], length - depth - 1
                nexts[depth] += 1
                twice = far[to] > left or (far[to] == 0) != (left == 0)
                for earlier in range(depth):
                    twice |= trial[earlier] == to
                if twice:
                    continue
                depth += 1
                trial[depth], nexts[depth] = to, start[to]
                if left == 0:
                    if used + length + 1 > len(room):
                        return NO_ROOM
                    for hop in range(length + 1):
                        room[used + hop] = trial[hop]
                    used, many, depth = used + length + 1, many + 1, depth - 1
            if many:
                if number == len(groups):
                    return NO_ROOM
                groups[number, 0], groups[number, 1], groups[number, 2], groups[number, 3] = (
                    s,
                    length,
                    many,
                    before,
                )
                number += 1
            found += many
            length += 1
    return number
