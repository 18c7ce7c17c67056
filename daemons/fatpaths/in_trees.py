"""Layers as in-trees: each layer's paths to one destination are a tree, so there is no loop
whatever each router picks.

The pair whose layers coincide sets the throughput of the worst case, so the routers that have the
fewest distinct paths to a destination choose first.  A router s without a hop in this layer's tree
tries each neighbour u: the path from there on is u's in the tree or, if u has none yet, u's
shortest one, which u is then bound to.  Of those that do not lead through s and are not too long, s
takes the one that shares the fewest links with its earlier paths, then the one that binds the
router least in need, then the one whose links carry the fewest paths.  A router that finds no new
path is left.  At the end routers with few distinct paths may take one that is a link longer:
shortest paths from a router's neighbours to an adjacent one often lead through the router itself.
Those still left take their path of layer 0.
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
FEW = 4  # distinct paths; routers with at most so many may take one a link longer
# what a shared link, a bound router and the mean load of an arc cost
SHARED, BOUND, LOADED = 1000.0, 1.0, 1.0
NO_PATH = 1e18


def grow(
    start: Array,
    peer: Array,
    arc_of: Table,
    tables: Table,
    load: Numbers,
    most_hops: int,
    order: Array,
    ties: Array,
    used: Array,
    distinct: Array,
) -> None:
    """Fill layers 1 .. of `tables`, of which layer 0 holds shortest paths and the others UNSET, but
    for hops that are to be kept, which lead all the way to their destination.

    arc_of: the arc from any router to any neighbour, shape (routers, routers).
    load: of each arc, the paths over it; changed.  most_hops: of a path that is not shortest; one
        more for a router that has at most FEW distinct paths.
    order: of destinations.  ties: for each destination the order of routers that have equally many
        paths.
    used, distinct: scratch, one number for each arc and each router.
    """
    layers, routers = tables.shape[0], tables.shape[1]
    used[:] = UNSET
    for t in order:
        distinct[:] = 1
        carry(arc_of, tables, load, 0, t)
        for layer in range(1, layers):
            tables[layer, t, t] = t
            for s in range(routers):
                if s != t and tables[layer, t, s] != UNSET:
                    mark(arc_of, tables, used, layer, t, s)
                    distinct[s] += routers * is_new(arc_of, tables, used, layer, t, s)
            mean_load = load.sum() / len(load)
            # the fewest first; at last, those with few take a longer path
            for turn in range(1, layer + FEW + 1):
                paths, most = (turn, most_hops) if turn <= layer else (turn - layer, most_hops + 1)
                for s in ties[t]:
                    if distinct[s] == paths and tables[layer, t, s] == UNSET:
                        mark(arc_of, tables, used, layer, t, s)
                        u = best(
                            start,
                            peer,
                            arc_of,
                            tables,
                            load,
                            used,
                            distinct,
                            most,
                            mean_load,
                            layer,
                            t,
                            s,
                        )
                        if u != UNSET:
                            bind(tables, layer, t, s, u)
                            distinct[s] += routers  # served in this layer, to be counted at its end
            for s in range(routers):
                if distinct[s] > routers:
                    distinct[s] -= routers - 1
                if tables[layer, t, s] == UNSET:
                    tables[layer, t, s] = tables[0, t, s]
            carry(arc_of, tables, load, layer, t)


def carry(arc_of: Table, tables: Table, load: Numbers, layer: int, t: int) -> None:
    """Add the paths of this layer to `t` to the load of their arcs."""
    for s in range(tables.shape[1]):
        at = s
        while at != t:
            after = tables[layer, t, at]
            load[arc_of[at, after]] += 1
            at = after


def mark(arc_of: Table, tables: Table, used: Array, layer: int, t: int, s: int) -> None:
    """Mark in `used`, by a number that only this router, destination and layer have, the arcs of
    the paths from `s` to `t` in the layers before this one.
    """
    routers = tables.shape[1]
    for earlier in range(layer):
        at = s
        while at != t:
            after = tables[earlier, t, at]
            used[arc_of[at, after]] = (layer * routers + t) * routers + s
            at = after


def is_new(arc_of: Table, tables: Table, used: Array, layer: int, t: int, s: int) -> bool:
    """Whether the path of this layer from `s` to `t` has an arc that mark() has not marked for
    them.
    """
    routers = tables.shape[1]
    at, new = s, False
    while at != t:
        after = tables[layer, t, at]
        new |= used[arc_of[at, after]] != (layer * routers + t) * routers + s
        at = after
    return new


def best(
    start: Array,
    peer: Array,
    arc_of: Table,
    tables: Table,
    load: Numbers,
    used: Array,
    distinct: Array,
    most_hops: int,
    mean_load: float,
    layer: int,
    t: int,
    s: int,
) -> int:
    """The neighbour through which `s` gets a new path to `t` at the least cost, UNSET if there is
    none.
    """
    routers = tables.shape[1]
    own = (layer * routers + t) * routers + s
    found, least = UNSET, NO_PATH
    for first in range(start[s], start[s + 1]):
        at, arc, hops, shared, cost = peer[first], first, 1, 0, 0.0
        while True:
            shared += used[arc] == own
            cost += SHARED * (used[arc] == own) + LOADED * load[arc] / mean_load
            if at in (t, s) or hops == most_hops:
                break
            after = tables[layer, t, at]
            if after == UNSET:
                after = tables[0, t, at]
                cost += BOUND * (layer + 1 - distinct[at] % routers)
            arc, at, hops = arc_of[at, after], after, hops + 1
        if at == t and shared < hops and cost < least:
            found, least = peer[first], cost
    return found


def bind(tables: Table, layer: int, t: int, s: int, u: int) -> None:
    """Let `s` send to `u` on the way to `t`, and `u` and those behind it along their shortest paths
    if they have no hop yet.
    """
    tables[layer, t, s] = u
    at = u
    while tables[layer, t, at] == UNSET:
        tables[layer, t, at] = tables[0, t, at]
        at = tables[0, t, at]
