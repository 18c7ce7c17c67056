"""Limits in time: a token-bucket rate limiter, and a retransmission timer (RFC 6298)."""

from __future__ import annotations

from math import inf

GAIN, DEVIATION_GAIN, DEVIATIONS = 1 / 8, 1 / 4, 4  # RFC 6298


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


class RtoEstimator:
    """Timeout for an answer, from `least_s` to `most_s`; `most_s` before the first answer."""

    def __init__(self, least_s: float, most_s: float) -> None:
        self._least_s, self._most_s = least_s, most_s
        self._smoothed_s = self._deviation_s = most_s

    def heard(self, answer_s: float) -> None:
        """Account for an answer that came after `answer_s`."""
        if self._smoothed_s == self._most_s:
            self._smoothed_s = answer_s
            self._deviation_s = answer_s / 2
            return
        error_s = answer_s - self._smoothed_s
        self._deviation_s += DEVIATION_GAIN * (abs(error_s) - self._deviation_s)
        self._smoothed_s += GAIN * error_s

    @property
    def wait_s(self) -> float:
        """Timeout of the next answer."""
        timeout_s = self._smoothed_s + DEVIATIONS * self._deviation_s
        return min(max(self._least_s, timeout_s), self._most_s)
