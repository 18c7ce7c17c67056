"""Random numbers that are a function of a seed alone, for networks whose seed is part of their
name.

SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) is three lines of integer arithmetic, so the network
that a spec names is the same on every machine and with every version of every library, which numpy
does not promise of its generators.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import TypeVar

T = TypeVar("T")

MASK = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15


class SplitMix64:
    """A stream of 64-bit numbers; equal seeds, from 0 on, give equal streams."""

    def __init__(self, seed: int) -> None:
        self._state = seed & MASK

    def bits(self) -> int:
        """Return the next 64 bits."""
        self._state = z = (self._state + GAMMA) & MASK
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        return z ^ z >> 31

    def below(self, limit: int) -> int:
        """Draw an integer from 0 .. limit - 1 uniformly; `limit` is at least 1."""
        # beyond, some numbers would be more likely than others
        most = (1 << 64) - (1 << 64) % limit
        while (drawn := self.bits()) >= most:
            pass
        return drawn % limit

    def shuffle(self, items: MutableSequence[T]) -> None:
        """Shuffle `items` in place, every order equally likely (Fisher and Yates)."""
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]
