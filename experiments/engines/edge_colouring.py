"""What a central controller can reach on a Clos network: an edge colouring of the multigraph of its
leaves.

The flows are edges from input leaves to output leaves.  By König's theorem as many colours as the
busiest leaf has flows are enough to give the flows of every leaf different colours; spine s takes
an equal share of the colours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def colours(edges: Sequence[tuple[int, int]]) -> list[int]:
    """For each edge (input leaf, output leaf) a colour that no other edge of either leaf has.

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
    at: dict[tuple[bool, int, int], int] = {}  # the edge by side (True: output), leaf and colour
    found = [-1] * len(edges)

    def free(side: bool, leaf: int) -> int:
        return next(colour for colour in range(degree) if (side, leaf, colour) not in at)

    for edge, ends in enumerate(edges):
        first, second = free(False, ends[0]), free(True, ends[1])
        path, side, leaf, colour = [], True, ends[1], first
        while (side, leaf, colour) in at:
            path.append(at[side, leaf, colour])
            side, colour = not side, second if colour == first else first
            leaf = edges[path[-1]][side]
        for one in path:
            del at[False, edges[one][0], found[one]], at[True, edges[one][1], found[one]]
        for one in [*path, edge]:
            found[one] = first if one == edge or found[one] == second else second
            at[False, edges[one][0], found[one]] = at[True, edges[one][1], found[one]] = one
    return found


def assign(edges: Sequence[tuple[int, int]], m: int) -> list[int]:
    """A spine, of m, for each flow (input leaf, output leaf), such that the fullest link has as few
    flows as possible.

    That is the most flows of a leaf over m, rounded up: p colours a spine where p flows a link are
    needed. ValueError unless there is a spine, and every leaf has a number from 0 on.
    """
    if m < 1:
        raise ValueError(f"dar: there must be a spine or more, got {m}")
    if edges and min(map(min, edges)) < 0:
        raise ValueError(f"dar: leaves are numbered from 0 on, got {min(map(min, edges))}")
    colour = colours(edges)
    each = -(-(max(colour, default=0) + 1) // m)
    return [one // each for one in colour]
