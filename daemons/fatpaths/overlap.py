"""One layer of FatPaths' listing 2, over arrays: paths of a given length that share few links with
earlier ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    Numbers = NDArray[np.float64]

NOWHERE = 1e18


def layer(
    start: Array,
    peer: Array,
    pairs: Array,
    length: int,
    most_paths: int,
    available: Flags,
    chosen: Flags,
    weight: Numbers,
    count: Array,
    open_pairs: Flags,
    cost: Numbers,
    by: Array,
    path: Array,
) -> None:
    """Add paths of `length` links to a layer until `most_paths` are found or no pair is left.

    pairs: in the order in which they are served, those with the fewest paths first.
    available: arcs that paths may take; changed.  chosen: the layer's arcs, filled.
    weight: of each arc, how much earlier paths cross it; changed.  count: paths of each pair so
        far; changed.
    open_pairs: pairs that may still be served; changed.
    cost, by: scratch, shape (length + 1, routers); path: scratch, length + 1.
    """
    paths = 0
    for row in range(len(pairs)):
        if paths == most_paths:
            break
        u, v = pairs[row, 0], pairs[row, 1]
        if not open_pairs[u, v]:
            continue
        open_pairs[u, v] = False
        if not cheapest(start, peer, available, weight, u, v, length, cost, by, path):
            continue
        paths += 1
        count[u, v] += 1
        for i in range(length):
            for j in range(i + 1, length + 1):
                if j - i < length:
                    open_pairs[path[i], path[j]] = False
                for arc in range(start[path[i]], start[path[i] + 1]):
                    if peer[arc] == path[j]:
                        if j == i + 1:
                            chosen[arc] = True
                            weight[arc] += j * (length + 1 - j)
                        else:
                            available[arc] = False


def cheapest(
    start: Array,
    peer: Array,
    available: Flags,
    weight: Numbers,
    src: int,
    dst: int,
    length: int,
    cost: Numbers,
    by: Array,
    path: Array,
) -> bool:
    """Put into `path` the path of exactly `length` links from `src` to `dst` whose weights sum to
    the least, over arcs that are `available`; these lead from lower ranks to higher ones, so no
    router comes twice.  False if there is none.
    """
    routers = len(start) - 1
    cost[:] = NOWHERE
    cost[0, src] = 0
    for hop in range(length):
        for u in range(routers):
            if cost[hop, u] < NOWHERE:
                for arc in range(start[u], start[u + 1]):
                    if available[arc] and cost[hop, u] + weight[arc] < cost[hop + 1, peer[arc]]:
                        cost[hop + 1, peer[arc]] = cost[hop, u] + weight[arc]
                        by[hop + 1, peer[arc]] = u
    if cost[length, dst] >= NOWHERE:
        return False
    path[length] = dst
    for hop in range(length, 0, -1):
        path[hop - 1] = by[hop, path[hop]]
    return True
