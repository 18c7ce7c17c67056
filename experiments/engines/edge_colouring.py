"""Best assignment of flows to the spines of a Clos network: an edge colouring of its leaves.

The flows are edges from input leaves to output leaves.  By König's theorem as many colours as the
busiest leaf has flows are enough to give the flows of every leaf different colours; spine s takes
an equal share of the colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

# the edge by side (True: output), leaf and colour
EdgeOf = dict[tuple[bool, int, int], int]


def free(edge_of: EdgeOf, side: bool, leaf: int) -> int:
    """Return the first colour that no edge of a leaf has."""
    return next(colour for colour in count() if (side, leaf, colour) not in edge_of)


def alternating_path(
    edges: Sequence[tuple[int, int]], edge_of: EdgeOf, leaf: int, colours: tuple[int, int]
) -> list[int]:
    """Return the edges of the path from an output leaf on which two colours alternate."""
    path: list[int] = []
    side = True
    while (side, leaf, colours[len(path) % 2]) in edge_of:
        path.append(edge_of[side, leaf, colours[len(path) % 2]])
        side = not side
        leaf = edges[path[-1]][side]
    return path


def colours(edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return a colour for each edge (input leaf, output leaf) that no other edge of a leaf has.

    There are as many colours as edges at the leaf that has most.  An edge whose leaves have no free
    colour in common exchanges two colours along the path from its output leaf on which they
    alternate.
    """
    edge_of: EdgeOf = {}
    colour_of = [-1] * len(edges)

    for edge, (source, target) in enumerate(edges):
        first = free(edge_of, False, source)
        second = free(edge_of, True, target)
        path = alternating_path(edges, edge_of, target, (first, second))
        for other in path:
            for side in (False, True):
                del edge_of[side, edges[other][side], colour_of[other]]
        for other in [*path, edge]:
            colour = first if other == edge or colour_of[other] == second else second
            colour_of[other] = colour
            for side in (False, True):
                edge_of[side, edges[other][side], colour] = other
    return colour_of


def assign(edges: Sequence[tuple[int, int]], m: int) -> list[int]:
    """Return a spine, of `m`, for each flow (input leaf, output leaf).

    The fullest link has as few flows as possible: the most flows of a leaf over m, rounded up.

    Raises:
        ValueError: there is no spine, or a leaf has a negative number.
    """
    if m < 1:
        raise ValueError(f"dar: there must be a spine or more, got {m}")
    if edges and min(map(min, edges)) < 0:
        raise ValueError(f"dar: leaves are numbered from 0 on, got {min(map(min, edges))}")
    edge_colours = colours(edges)
    colours_of_spine = -(-(max(edge_colours, default=0) + 1) // m)
    return [colour // colours_of_spine for colour in edge_colours]
