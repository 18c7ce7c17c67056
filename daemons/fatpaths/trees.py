"""Layers that are trees, with which FatPaths compares its own: PAST, SPAIN and k shortest paths (appendix C)."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from weft.daemons.fatpaths import spain
from weft.daemons.fatpaths.layers import Graph, as_it_is, distances, everything, next_hops, tables, with_fallback

if TYPE_CHECKING:
    import numpy as np
    from numpy.random import Generator
    from numpy.typing import NDArray

    from weft.daemons.fatpaths.layers import Compiler

    Paths = list[tuple[int, ...]]


def past_layers(graph: Graph, n: int, generator: Generator) -> NDArray[np.int32]:
    """PAST (Stephens et al., CoNEXT 2012) in its minimal variant: for each layer and each destination the spanning tree
    of a breadth-first search from it, ties broken at random.

    Ours: PAST has one tree for each address.  Here a destination router has n of them, as if each belonged to one of
    its hosts.
    """
    import numpy as np

    return np.stack([connected(next_hops(graph, everything(graph), generator)) for _ in range(n)])


def connected(table: NDArray[np.int32]) -> NDArray[np.int32]:
    """`table`; ValueError if it has no path for some pair."""
    if (table < 0).any():
        raise ValueError("layered routing: the routers are not connected")
    return table


def past_valiant_layers(graph: Graph, n: int, generator: Generator) -> NDArray[np.int32]:
    """PAST (Stephens et al., CoNEXT 2012) in its non-minimal variant (FatPaths, listing 5): for each layer but the
    first and each destination the spanning tree of a breadth-first search from a random router, ties broken at random;
    paths follow the tree's links, up and then down.

    Ours: PAST has one tree for each address.  Here a destination router has n - 1 of them, as if each belonged to one
    of its hosts, and layer 0.
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
    graph: Graph, n: int, generator: Generator, *, paths: int = 3, accelerate: Compiler = as_it_is
) -> NDArray[np.int32]:
    """SPAIN (listing 4): for each destination `paths` paths from each router, as disjoint as can be, coloured into
    trees, and trees of all destinations merged in random order while they have no circle.

    Ours: SPAIN has as many layers as come of that, hundreds.  Of these, n - 1 are taken, each the one with the most
    links that no earlier one has, beside layer 0 with all links.
    """
    import numpy as np

    trees = np.concatenate([_coloured(graph, t, paths, generator, accelerate) for t in range(graph.routers)])
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


def _coloured(graph: Graph, t: int, paths: int, generator: Generator, accelerate: Compiler) -> NDArray[np.int32]:
    """The trees to `t`, shape (colours, routers); neighbours and routers in random order, as the listing leaves open
    which of equal paths is found."""
    import numpy as np

    after = np.empty((graph.routers * paths, graph.routers), dtype=np.int32)
    peer = graph.peer[np.lexsort((generator.random(len(graph.peer)), graph.tail))]
    shuffled = Graph(graph.start, peer)
    integers = (np.empty(len(peer), dtype=np.int64), *np.empty((2, graph.routers), dtype=np.int64))
    colours = accelerate(spain.colour_paths)(
        *(graph.start, peer, shuffled.arc_of(), t, generator.permutation(graph.routers), after),
        *(np.empty((paths, graph.routers + 1), dtype=np.int64), *integers, np.empty(graph.routers, dtype=bool)),
    )
    return after[:colours].copy()


def k_shortest_layers(graph: Graph, n: int, generator: Generator) -> NDArray[np.int32]:
    """The n shortest paths of each pair (Singla et al., NSDI 2012; appendix C-D), as far as routes by destination hold
    them.

    Ours: k-shortest-path routing needs a route for each source.  Here each path goes into the first layer in which it
    goes along with those that are there, all pairs' second paths before any third; a path that fits into no layer is
    left out, and a router without a path in a layer takes layer 0's hop.
    """
    import numpy as np

    first = connected(next_hops(graph, everything(graph), generator))
    layers = np.full((n, graph.routers, graph.routers), -1, dtype=np.int32)
    layers[0] = first
    ways = {
        (s, t): found
        for t, far in enumerate(distances(graph, everything(graph)).T)
        for s in range(graph.routers)
        if s != t and (found := shortest_paths(graph, far, s, n, generator))
    }
    pairs = list(ways)
    for rank in range(1, n):
        for place in generator.permutation(len(pairs)).tolist():
            found = ways[pairs[place]]
            if rank < len(found):
                plant(layers[1:], found[rank])
    return np.stack([first, *(with_fallback(table, first) for table in layers[1:])])


def plant(layers: NDArray[np.int32], path: tuple[int, ...]) -> bool:
    """Put `path`, routers from source to destination, into the first of `layers`, shape (layers, routers t, routers u),
    that has no other path of its source and goes along with those that are there; whether there was one."""
    hops = list(pairwise(path))
    for table in layers[:, path[-1]]:
        if table[path[0]] < 0 and all(table[u] in (-1, v) for u, v in hops):
            for u, v in hops:
                table[u] = v
            return True
    return False


def shortest_paths(graph: Graph, far: NDArray[np.int8], s: int, n: int, generator: Generator) -> Paths:
    """The n shortest paths from router `s` to the one from which others are `far`, that enter no router twice; of
    equally long ones any, and fewer where there are not as many."""
    found: Paths = []
    length = int(far[s])
    while len(found) < n and length < graph.routers:
        equal = _paths(graph, far, (s,), length)
        found += [equal[place] for place in generator.permutation(len(equal))[: n - len(found)].tolist()]
        length += 1
    return found


def _paths(graph: Graph, far: NDArray[np.int8], begun: tuple[int, ...], left: int) -> Paths:
    """The ways to go on from `begun` that have `left` links more and end where `far` is 0."""
    if not left:
        return [begun]
    u = begun[-1]
    return [
        way
        for v in graph.peer[graph.start[u] : graph.start[u + 1]].tolist()
        if far[v] <= left - 1 and v not in begun and (far[v] or left == 1)
        for way in _paths(graph, far, (*begun, v), left - 1)
    ]
