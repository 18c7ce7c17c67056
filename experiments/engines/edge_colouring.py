"""Best assignment of flows to the spines of a Clos network: an edge colouring of its leaves.

The flows are edges from input leaves to output leaves.  By König's theorem as many colours as the
busiest leaf has flows are enough to give the flows of every leaf different colours; spine s takes
an equal share of the colours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def colours(edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return a colour for each edge (input leaf, output leaf) that no other edge of a leaf has.

    There are as many colours as edges at the leaf that has most.  An edge whose leaves have no free
    colour in common exchanges two colours along the path from its output leaf on which they
    alternate.
    """
    degree = max(
        [
            0,
            *Counter(first for first, _ in edges).values(),
            *Counter(last for _, last in edges).values(),
        ]
    )
    # the edge by side (True: output), leaf and colour
    edge_of: dict[tuple[bool, int, int], int] = {}
    colour_of = [-1] * len(edges)

    def free(side: bool, leaf: int) -> int:
        return next(colour for colour in range(degree) if (side, leaf, colour) not in edge_of)

    def alternating_path(leaf: int, first: int, second: int) -> list[int]:
        path, side, colour = [], True, first
        while (side, leaf, colour) in edge_of:
            path.append(edge_of[side, leaf, colour])
            side, colour = not side, second if colour == first else first
            leaf = edges[path[-1]][side]
        return path

    for edge, (source, target) in enumerate(edges):
        first, second = free(False, source), free(True, target)
        path = alternating_path(target, first, second)
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
