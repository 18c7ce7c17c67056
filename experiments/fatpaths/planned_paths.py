"""A few paths for each demand of traffic that is known, by which nearly as much of it can be sent
as by all paths.

The optimum over all paths of at most D + 1 links, and over longer ones as far as their prices let
them in, sends most demands along few paths.  Of these each keeps the path that it has anyway and
the ones that carry most; then those that would have helped what is left are tried instead, and what
is best is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.experiments.fatpaths import achievable_throughput
from weft.experiments.fatpaths.achievable_throughput import Demands, RouterPath
from weft.experiments.fatpaths.router_graph import RouterGraph

ROUNDS = 3  # of longer paths, and of exchanges


def planned_paths(
    graph: RouterGraph, demands: Demands, fixed: Sequence[RouterPath], n: int
) -> list[list[RouterPath]]:
    """For each demand at most n - 1 paths beside the one in `fixed`, those that should carry most
    first.

    At least as much can be sent along them as along those of the optimum that carry most.
    """
    columns = [
        dict.fromkeys(paths) for paths in achievable_throughput.short_paths(graph, demands, 1)
    ]
    for paths, path in zip(columns, fixed, strict=True):
        paths[path] = None
    arc_count = len(graph.peer)
    for turn in range(ROUNDS):
        listed = [list(paths) for paths in columns]
        optimum = achievable_throughput.maximum(listed, demands, arc_count)
        if turn < ROUNDS - 1:
            achievable_throughput.add_cheapest(graph, demands, columns, optimum)
    kept = heaviest(listed, optimum, fixed, n)
    best = achievable_throughput.maximum(kept, demands, arc_count)
    found, current = kept, best
    for _ in range(ROUNDS):
        wider = [
            list(dict.fromkeys([*few, *cheapest(every, current, n)]))
            for few, every in zip(kept, listed, strict=True)
        ]
        kept = heaviest(wider, achievable_throughput.maximum(wider, demands, arc_count), fixed, n)
        current = achievable_throughput.maximum(kept, demands, arc_count)
        if current.throughput > best.throughput:
            best, found = current, kept
    return [[path for path in few if path != own] for few, own in zip(found, fixed, strict=True)]


def heaviest(
    paths: Sequence[Sequence[RouterPath]],
    optimum: achievable_throughput.Optimum,
    fixed: Sequence[RouterPath],
    n: int,
) -> list[list[RouterPath]]:
    """Of each demand the path in `fixed` and the n - 1 others that carry most in `optimum`."""
    found, at = [], 0
    for few, own in zip(paths, fixed, strict=True):
        flow = optimum.flow[at : at + len(few)]
        at += len(few)
        others = sorted(
            (place for place, path in enumerate(few) if path != own), key=lambda place: -flow[place]
        )
        found.append([own, *(few[place] for place in others[: n - 1])])
    return found


def cheapest(
    paths: Sequence[RouterPath], optimum: achievable_throughput.Optimum, most: int
) -> list[RouterPath]:
    """Those of `paths` whose arcs cost the least in `optimum`, at most so many."""
    price = optimum.arc_price
    return sorted(paths, key=lambda path: float(price[list(path)].sum()))[:most]
