"""One layer of the authors' later construction over arrays: for each destination, in-trees of paths
one hop longer.

The construction for their Slim Fly installation (Blach et al., NSDI 2024), as
a fork of opensm has it under the name lnmp.  Pairs are served in order of how many such paths they
have.  The path of a pair follows what earlier paths of this layer have set for its destination, so
that a layer is one partial in-tree for each; the routers that it serves for the first time are
counted, and the arcs behind each of them become heavier by one. Routers that no path has served
take layer 0's hop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.int64]
    Numbers = NDArray[np.float64]
    Hops = NDArray[np.int8]
    Table = NDArray[np.int32]

UNSET = -1
NO_PATH = 1e18


def layer(
    start: Array,
    peer: Array,
    far: Hops,
    pairs: Array,
    length: int,
    table: Table,
    weight: Numbers,
    count: Array,
    path: Array,
    trial: Array,
    nexts: Array,
) -> None:
    """Fill `table`, shape (routers t, routers u), as far as paths of `length` links allow.

    The rest stays UNSET.

    far: links between routers.  pairs: source and destination, in the order in which they are
        served.
    weight: of each arc, the sources that earlier paths lead over it; changed.
    count: for each pair (s, t), its paths of so many links; changed.
    path, trial, nexts: scratch, length + 1 numbers each.
    """
    for row in range(len(pairs)):
        s, t = pairs[row, 0], pairs[row, 1]
        if table[t, s] != UNSET or not lightest(
            start, peer, far, table, weight, s, t, length, path, trial, nexts
        ):
            continue
        new = 0
        for hop in range(length):
            at = path[hop]
            if table[t, at] == UNSET:
                new += 1
                table[t, at] = path[hop + 1]
                if hop == 0:
                    count[at, t] += 1
            for arc in range(start[at], start[at + 1]):
                if peer[arc] == path[hop + 1]:
                    weight[arc] += new


def lightest(
    start: Array,
    peer: Array,
    far: Hops,
    table: Table,
    weight: Numbers,
    s: int,
    t: int,
    length: int,
    path: Array,
    trial: Array,
    nexts: Array,
) -> bool:
    """Put into `path` the path of `length` links from `s` to `t` of the least weight that enters no
    router twice and follows `table` from where that has a hop; False if there is none.
    """
    least, cost = NO_PATH, 0.0
    trial[0], depth = s, 0
    nexts[0] = start[s]
    while depth >= 0:
        at = trial[depth]
        if nexts[depth] == start[at + 1]:
            depth -= 1
            if depth >= 0:
                cost -= weight[nexts[depth] - 1]
            continue
        arc = nexts[depth]
        nexts[depth] += 1
        to, left = peer[arc], length - depth - 1
        if far[t, to] > left or (to == t) != (left == 0) or cost + weight[arc] >= least:
            continue  # links run both ways, and a row lies together in memory
        if depth > 0 and table[t, at] != UNSET and table[t, at] != to:
            continue
        twice = False
        for before in range(depth):
            twice |= trial[before] == to
        if twice:
            continue
        if left == 0:
            least = cost + weight[arc]
            for hop in range(depth + 1):
                path[hop] = trial[hop]
            path[length] = t
            continue
        cost += weight[arc]
        depth += 1
        trial[depth], nexts[depth] = to, start[to]
    return least < NO_PATH
