"""SPAIN (Mudigonda et al., NSDI 2010) over arrays, as FatPaths' listing 4 has it.

Disjoint paths to a destination are coloured into trees, and trees of several destinations are
merged into forests.

Paths to one destination go together, "vlan-compatible", where no router has two next hops: their
union is an in-tree. A colour is such a union, after[colour, u] being the router after u, UNSET
where no path of that colour comes by.
"""

from __future__ import annotations

from typing import NamedTuple

from weft.daemons.fatpaths.layers import UNSET, ArcFlags, IntegerArray, RouterArrays, RouterTable


class LightestPaths(NamedTuple):
    """State of a search for disjoint paths.

    uses: of each arc, the earlier paths of this router that have its link.
    paths: shape (k, routers + 1), the paths of a router.
    cost, by, done: scratch, one for each router.
    """

    graph: RouterArrays
    arc_of: RouterTable
    uses: IntegerArray
    paths: IntegerArray
    cost: IntegerArray
    by: IntegerArray
    done: ArcFlags


def colour_paths(search: LightestPaths, t: int, order: IntegerArray, after: RouterTable) -> int:
    """Search paths from each router to `t`, and give each the first colour that it fits.

    A link weighs more than any path for each earlier path of this router that has it.

    Args:
        search: the graph and scratch.
        t: destination.
        order: of the routers.
        after: filled, shape (most colours, routers); a path without a colour is dropped.

    Returns:
        The number of colours.
    """
    colours, paths = 0, search.paths
    after[:] = UNSET
    for v in order:
        search.uses[:] = 0
        for number in range(len(paths) if v != t else 0):
            length = lightest(search, t, v, paths[number])
            if known(paths, number, length):
                break
            for hop in range(length):  # a link is used both ways
                u, w = paths[number, hop], paths[number, hop + 1]
                search.uses[search.arc_of[u, w]] += 1
                search.uses[search.arc_of[w, u]] += 1
            colours = max(colours, paint(after, paths[number, : length + 1]))
    return colours


def paint(after: RouterTable, path: IntegerArray) -> int:
    """Give `path` the first colour that it fits; return that colour's number, from 1, or 0."""
    for colour in range(len(after)):
        fits = True
        for hop in range(len(path) - 1):
            fits &= after[colour, path[hop]] in (UNSET, path[hop + 1])
        if fits:
            for hop in range(len(path) - 1):
                after[colour, path[hop]] = path[hop + 1]
            return colour + 1
    return 0


def known(paths: IntegerArray, number: int, length: int) -> bool:
    """Return True if path `number`, of so many links, equals an earlier one."""
    for earlier in range(number):
        same = True
        for hop in range(length + 1):
            same &= paths[earlier, hop] == paths[number, hop]
        if same:
            return True
    return False


def lightest(search: LightestPaths, src: int, dst: int, path: IntegerArray) -> int:
    """Put into `path` the routers from `dst` back to `src`, and return the number of its links.

    Its links have the fewest uses; of such paths it has the fewest links.
    """
    graph, cost, done = search.graph, search.cost, search.done
    routers = len(graph.start) - 1
    most = routers + 1  # more than the links of any path
    cost[:] = most * most * most
    done[:] = False
    cost[src] = 0
    while not done[dst]:
        u = UNSET
        for v in range(routers):
            if not done[v] and (u == UNSET or cost[v] < cost[u]):
                u = v
        done[u] = True
        for arc in range(graph.start[u], graph.start[u + 1]):
            v, through = graph.peer[arc], cost[u] + 1 + most * search.uses[arc]
            if through < cost[v]:
                cost[v] = through
                search.by[v] = u
    length = 0
    path[0] = dst
    while path[length] != src:
        path[length + 1] = search.by[path[length]]
        length += 1
    return length


class Forests(NamedTuple):
    """Trees to be merged.

    trees: shape (trees, routers).
    order: trees that wait, others UNSET.
    links: arcs of the links that are merged.
    root, trial: scratch, one for each router.
    """

    trees: RouterTable
    order: IntegerArray
    arc_of: RouterTable
    links: ArcFlags
    root: IntegerArray
    trial: IntegerArray


def absorb(forests: Forests) -> int:
    """Merge the first tree that waits with every later one that closes no circle with it.

    Returns the number of links, 0 if no tree waits.
    """
    routers, links = forests.trees.shape[1], 0
    forests.links[:] = False
    for u in range(routers):
        forests.root[u] = u
    for place in range(len(forests.order)):
        tree = forests.order[place]
        forests.trial[:] = forests.root
        if tree != UNSET and links < routers - 1 and fits(forests, tree):
            forests.root[:] = forests.trial
            forests.order[place] = UNSET
            for u in range(routers):
                to = forests.trees[tree, u]
                if to != UNSET and not forests.links[forests.arc_of[u, to]]:
                    forests.links[forests.arc_of[u, to]] = True
                    forests.links[forests.arc_of[to, u]] = True
                    links += 1
    return links


def fits(forests: Forests, tree: int) -> bool:
    """Return True if `tree` closes no circle; `trial`, a copy of `root`, then joins its routers."""
    for u in range(forests.trees.shape[1]):
        to = forests.trees[tree, u]
        if to == UNSET or forests.links[forests.arc_of[u, to]]:
            continue
        near, far = representative(forests.trial, u), representative(forests.trial, to)
        if near == far:
            return False
        forests.trial[near] = far
    return True


def representative(root: IntegerArray, u: int) -> int:
    """Return the router that stands for all that are joined to `u`."""
    while root[u] != u:
        root[u] = root[root[u]]
        u = root[u]
    return u
