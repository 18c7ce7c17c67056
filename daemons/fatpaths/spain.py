"""SPAIN (Mudigonda et al., NSDI 2010) over arrays, as FatPaths' listing 4 has it: disjoint paths to
a destination are coloured into trees, and trees of several destinations merged into forests.

Paths to one destination go together, "vlan-compatible", where no router has two next hops: their
union is an in-tree. A colour is such a union, after[colour, u] being the router after u, UNSET
where no path of that colour comes by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    Table = NDArray[np.int32]

UNSET = -1


def colour_paths(
    start: Array,
    peer: Array,
    arc_of: Table,
    t: int,
    order: Array,
    after: Table,
    paths: Array,
    uses: Array,
    cost: Array,
    by: Array,
    done: Flags,
) -> int:
    """Find paths from each router to `t`, each the lightest where a link weighs more than any path
    for each earlier path of this router that has it, and give each the first colour that it goes
    together with; the number of colours.

    order: of the routers.  after: filled, shape (most colours, routers); a path that no colour is
        left for is dropped.
    paths: scratch, shape (k, routers + 1): as many paths of a router, fewer where there are not as
        many.
    uses, cost, by, done: scratch, one for each arc; three for each router.
    """
    colours = 0
    after[:] = UNSET
    for v in order:
        uses[:] = 0
        for number in range(len(paths) if v != t else 0):
            length = lightest(start, peer, t, v, uses, cost, by, done, paths[number])
            if known(paths, number, length):
                break
            for hop in range(length):  # a link is used both ways
                uses[arc_of[paths[number, hop], paths[number, hop + 1]]] += 1
                uses[arc_of[paths[number, hop + 1], paths[number, hop]]] += 1
            for colour in range(len(after)):
                fits = True
                for hop in range(length):
                    has = after[colour, paths[number, hop]]
                    fits &= has in (UNSET, paths[number, hop + 1])
                if fits:
                    for hop in range(length):
                        after[colour, paths[number, hop]] = paths[number, hop + 1]
                    colours = max(colours, colour + 1)
                    break
    return colours


def known(paths: Array, number: int, length: int) -> bool:
    """Return True if path `number`, of so many links, equals an earlier one."""
    for earlier in range(number):
        same = True
        for hop in range(length + 1):
            same &= paths[earlier, hop] == paths[number, hop]
        if same:
            return True
    return False


def lightest(
    start: Array,
    peer: Array,
    src: int,
    dst: int,
    uses: Array,
    cost: Array,
    by: Array,
    done: Flags,
    path: Array,
) -> int:
    """Put into `path` the routers from `dst` back to `src` of the path whose links have the fewest
    uses, and of those the one with the fewest links; how many links it has.  Links run both ways,
    and so does the path.
    """
    routers = len(start) - 1
    most = routers + 1  # more than the links of any path
    cost[:] = most * most * most
    done[:] = False
    cost[src] = 0
    while not done[dst]:
        at = UNSET
        for u in range(routers):
            if not done[u] and (at == UNSET or cost[u] < cost[at]):
                at = u
        done[at] = True
        for arc in range(start[at], start[at + 1]):
            through = cost[at] + 1 + most * uses[arc]
            if through < cost[peer[arc]]:
                cost[peer[arc]], by[peer[arc]] = through, at
    length, at = 0, dst
    path[0] = dst
    while at != src:
        at = by[at]
        length += 1
        path[length] = at
    return length


def absorb(trees: Table, order: Array, arc_of: Table, has: Flags, root: Array, trial: Array) -> int:
    """Merge the first tree of `order` that is left with every later one that closes no circle with
    what is merged by then; the number of links, 0 if no tree is left.

    trees: shape (trees, routers).  order: trees not yet merged, others UNSET; changed.
    has: filled, the arcs of the links that were merged.  root, trial: scratch, one for each router.
    """
    routers, links = trees.shape[1], 0
    has[:] = False
    for u in range(routers):
        root[u] = u
    for place in range(len(order)):
        tree = order[place]
        if tree == UNSET or links == routers - 1:
            continue
        trial[:] = root
        circle = False
        for u in range(routers):
            to = trees[tree, u]
            if to == UNSET or has[arc_of[u, to]]:
                continue
            one, other = representative(trial, u), representative(trial, to)
            if one == other:
                circle = True
                break
            trial[one] = other
        if circle:
            continue
        root[:] = trial
        order[place] = UNSET
        for u in range(routers):
            to = trees[tree, u]
            if to != UNSET and not has[arc_of[u, to]]:
                has[arc_of[u, to]], has[arc_of[to, u]] = True, True
                links += 1
    return links


def representative(root: Array, u: int) -> int:
    """The router that stands for all that are joined to `u`."""
    while root[u] != u:
        root[u] = root[root[u]]
        u = root[u]
    return u
