"""One layer of FatPaths' listing 2, over arrays.

Its paths have a given length and share few links with earlier ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.daemons.fatpaths.layers import ArcFlags, IntegerArray, RouterArrays

Numbers = NDArray[np.float64]

NOWHERE = 1e18


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
