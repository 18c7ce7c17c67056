"""Counts of the graph engine: pairs by hops, pairs without a route, flows on channels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from weft.experiments.engines import loops as loops
from weft.experiments.engines.arrays import Ints, int_zeros
from weft.experiments.engines.loops import Book

LONGEST = 1021  # hops of any route
SMALL_BATCH = 1 << 14  # pairs that are routed by the same loads, to begin with


@dataclass(frozen=True, eq=False)
class Tally:
    """The outcome of routing pairs.

    hops: number of pairs by the hops of their route; empty if no pair has one.
    lost: number of pairs without a route.
    left_out: number of pairs with a dead end.
    loads: flows on each channel, shape (servers, k + 2), if counted.
    """

    hops: Ints
    lost: int
    left_out: int
    loads: Ints | None = None

    @property
    def connected(self) -> int:
        return int(self.hops.sum())

    @property
    def connected_fraction(self) -> float | None:
        """Of the pairs whose ends are alive; None if there is no such pair."""
        alive = self.connected + self.lost
        return self.connected / alive if alive else None

    @property
    def mean_hops(self) -> float | None:
        """Over the connected pairs; None if there are none."""
        return (
            float(np.average(np.arange(len(self.hops)), weights=self.hops))
            if self.connected
            else None
        )

    @property
    def sd_hops(self) -> float | None:
        """Standard deviation over the connected pairs; None if there are none."""
        mean = self.mean_hops
        if mean is None:
            return None
        return float(
            np.sqrt(np.average((np.arange(len(self.hops)) - mean) ** 2, weights=self.hops))
        )


def new_book(channels: int) -> Book:
    """Return the empty counts of a thread: pairs by hops, and flows on `channels` channels."""
    return Book(int_zeros(LONGEST + 3), np.zeros(channels, np.uint32))


def post(books: Sequence[Book], into: Ints) -> None:
    """Add the flows of all `books` to `into`, and reset them."""
    for book in books:
        into += book.flows
        book.flows[:] = 0


def tally(histogram: Ints, loads: Ints | None = None) -> Tally:
    """Return the tally of a histogram of loops.py."""
    hops = histogram[:-2]
    return Tally(
        np.trim_zeros(hops, "b"), int(histogram[loops.LOST]), int(histogram[loops.LEFT_OUT]), loads
    )


def batches(count: int) -> Iterator[tuple[int, int]]:
    """Yield 0 .. count-1 in batches (first, last + 1).

    A batch is a 256th of all, at most SMALL_BATCH, or a 64th of those before.  Flows of one batch
    are placed by the same loads, so any order and number of cores gives the same result, and in
    later batches no flow misses more than 1.6 % of the load.
    """
    first = 0
    while first < count:
        last = min(count, first + max(1, min(count // 256, SMALL_BATCH), first // 64))
        yield first, last
        first = last


def chunks(count: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield 0 .. count-1 in parts (first, last + 1) of at most `most`."""
    for first in range(0, count, most):
        yield first, min(count, first + most)
