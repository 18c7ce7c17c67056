"""Layers that are trees, with which FatPaths compares its own: PAST (appendix C-C)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemons.fatpaths.layers import Graph, everything, next_hops

if TYPE_CHECKING:
    import numpy as np
    from numpy.random import Generator
    from numpy.typing import NDArray


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
