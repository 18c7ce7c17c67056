"""Layers as in-trees: each layer's paths to one destination are a tree.

So there is no loop, whatever each router picks.

The pair whose layers coincide sets the throughput of the worst case, so the routers that have the
fewest distinct paths to a destination choose first.  A router s without a hop in this layer's tree
tries each neighbour u: the path from there on is u's in the tree or, if u has none yet, u's
shortest one, which u is then bound to.  Of those that do not lead through s and are not too long, s
takes the one that shares the fewest links with its earlier paths, then the one that binds the
router least in need, then the one whose links carry the fewest paths.  A router that finds no new
path waits.  At the end routers with few distinct paths may take one that is a link longer:
shortest paths from a router's neighbours to an adjacent one often lead through the router itself.
The others take their path of layer 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.daemons.fatpaths.layers import UNSET, IntegerArray, RouterArrays, RouterTable

FEW = 4  # distinct paths; routers with at most so many may take one a link longer
SHARED, BOUND = 1000.0, 1.0  # cost of a shared link and of a bound router, in mean loads of arcs
NO_PATH = 1e18


class Forest(NamedTuple):
    """The trees that grow.

    arc_of: the arc from any router to any neighbour, shape (routers, routers).
    tables: of all layers; layer 0 has shortest paths.
    load: of each arc, the paths over it.
    used: of each arc, the last (layer, destination, router) whose earlier paths have it.
    distinct: paths of each router to the present destination.
    """

    graph: RouterArrays
    arc_of: RouterTable
    tables: RouterTable
    load: NDArray[np.float64]
    used: IntegerArray
    distinct: IntegerArray


def grow(forest: Forest, most_hops: int, order: IntegerArray, ties: IntegerArray) -> None:
    """Fill layers 1 .. of the tables.

    Args:
        forest: with layer 0; all other hops UNSET.
        most_hops: of a path that is not shortest; one more for a router that has at most FEW
            distinct paths.
        order: of destinations.
        ties: for each destination the order of routers that have equally many paths.
    """
    forest.used[:] = UNSET
    for t in order:
        forest.distinct[:] = 1
        carry(forest, 0, t)
        for layer in range(1, len(forest.tables)):
            forest.tables[layer, t, t] = t
            serve(forest, most_hops, ties[t], layer, t)
            carry(forest, layer, t)


def serve(forest: Forest, most_hops: int, ties: IntegerArray, layer: int, t: int) -> None:
    """Let the routers choose their hops to `t` in this layer, those with the fewest paths first."""
    table, distinct, routers = forest.tables[layer, t], forest.distinct, len(ties)
    mean_load = forest.load.sum() / len(forest.load)
    for turn in range(1, layer + FEW + 1):
        longer = turn > layer
        paths = turn - layer if longer else turn
        for s in ties:
            if distinct[s] == paths and table[s] == UNSET:
                mark(forest, layer, t, s)
                u = best(forest, most_hops + longer, mean_load, layer, t, s)
                if u != UNSET:
                    bind(forest, layer, t, s, u)
                    distinct[s] += routers  # served in this layer, to be counted at its end
    for s in range(routers):
        if distinct[s] > routers:
            distinct[s] -= routers - 1
        if table[s] == UNSET:
            table[s] = forest.tables[0, t, s]


def carry(forest: Forest, layer: int, t: int) -> None:
    """Add the paths of this layer to `t` to the load of their arcs."""
    table = forest.tables[layer, t]
    for s in range(len(table)):
        u = s
        while u != t:
            forest.load[forest.arc_of[u, table[u]]] += 1
            u = table[u]


def mark(forest: Forest, layer: int, t: int, s: int) -> None:
    """Mark the arcs of the paths from `s` to `t` in the layers before this one.

    The mark is a number that only this router, destination and layer have.
    """
    routers = len(forest.distinct)
    for earlier in range(layer):
        u = s
        while u != t:
            after = forest.tables[earlier, t, u]
            forest.used[forest.arc_of[u, after]] = (layer * routers + t) * routers + s
            u = after


def best(forest: Forest, most_hops: int, mean_load: float, layer: int, t: int, s: int) -> int:
    """Return the neighbour through which `s` gets a new path to `t` at the least cost, or UNSET."""
    graph, routers = forest.graph, len(forest.distinct)
    own = (layer * routers + t) * routers + s
    cheapest, least = UNSET, NO_PATH
    for first in range(graph.start[s], graph.start[s + 1]):
        u, arc, hops, shared, cost = graph.peer[first], first, 1, 0, 0.0
        while True:
            repeated = forest.used[arc] == own
            shared += repeated
            cost += SHARED * repeated + forest.load[arc] / mean_load
            if u in (t, s) or hops == most_hops:
                break
            after = forest.tables[layer, t, u]
            if after == UNSET:
                after = forest.tables[0, t, u]
                cost += BOUND * (layer + 1 - forest.distinct[u] % routers)
            arc, u, hops = forest.arc_of[u, after], after, hops + 1
        if u == t and shared < hops and cost < least:
            cheapest, least = graph.peer[first], cost
    return cheapest


def bind(forest: Forest, layer: int, t: int, s: int, u: int) -> None:
    """Let `s` send to `u` on the way to `t`, and routers behind it along their shortest paths."""
    table, shortest = forest.tables[layer, t], forest.tables[0, t]
    table[s] = u
    while table[u] == UNSET:
        table[u] = shortest[u]
        u = shortest[u]
