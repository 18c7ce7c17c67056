"""Random numbers that are a function of a seed, for networks with a seed in their name.

SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) is three lines of integer arithmetic, so the network
that a spec names is the same on every machine and with every version of every library, which numpy
does not promise of its generators.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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

    def draws(self, limits: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return below(limit) for each of `limits`, in order."""
        import numpy as np

        states = np.uint64(self._state) + np.uint64(GAMMA) * np.arange(
            1, len(limits) + 1, dtype=np.uint64
        )
        z = (states ^ states >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
        most = MASK - (MASK % limits + 1) % limits  # largest number that below() takes
        if (z > most).any():
            return np.array([self.below(int(limit)) for limit in limits], dtype=np.uint64)
        self._state = (self._state + GAMMA * len(limits)) & MASK
        return z % limits

    def shuffle(self, items: MutableSequence[T]) -> None:
        """Shuffle `items` in place, every order equally likely (Fisher and Yates)."""
        import numpy as np

        limits = np.arange(len(items), 1, -1, dtype=np.uint64)
        for last, other in zip(
            range(len(items) - 1, 0, -1), self.draws(limits).tolist(), strict=True
        ):
            items[last], items[other] = items[other], items[last]
