"""Token-bucket rate limiter."""

from __future__ import annotations

from math import inf


class TokenBucket:
    """A token bucket: on average `per_s` a second, and after a rest up to `at_once`, at least 1, at one instant."""

    def __init__(self, per_s: float, at_once: float) -> None:
        self._gap_s = 1 / per_s
        self._most_s = self._gap_s * (at_once - 1)
        self._empty_s = -inf  # what was taken so far is paid for then

    def take(self, now: float) -> bool:
        """Whether there is one at `now`; if so it is taken."""
        if now < self.free_s:
            return False
        self._empty_s = max(self._empty_s, now) + self._gap_s
        return True

    @property
    def free_s(self) -> float:
        """When there is the next one."""
        return self._empty_s - self._most_s
