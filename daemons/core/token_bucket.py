"""Token-bucket rate limiter."""

from __future__ import annotations

from math import inf


class TokenBucket:
    """A token bucket.

    per_s: mean rate, in tokens a second.
    at_once: depth in tokens, at least 1: the most that a pause makes available at one instant.
    """

    def __init__(self, per_s: float, at_once: float) -> None:
        self._gap_s = 1 / per_s
        self._most_s = self._gap_s * (at_once - 1)
        self._full_s = -inf  # time at which the bucket is full again

    def take(self, now: float) -> bool:
        """Take a token; return False if there is none at `now`."""
        if now < self.free_s:
            return False
        self._full_s = max(self._full_s, now) + self._gap_s
        return True

    @property
    def free_s(self) -> float:
        """Time of the next token."""
        return self._full_s - self._most_s
