"""Layers that are trees, with which FatPaths compares its own: PAST and SPAIN (appendices C-B and C-C)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.daemons.fatpaths import spain
from weft.daemons.fatpaths.layers import Graph, as_it_is, everything, next_hops, tables

if TYPE_CHECKING:
    import numpy as np
    from numpy.random import Generator
    from numpy.typing import NDArray

    from weft.daemons.fatpaths.layers import Compiler


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
