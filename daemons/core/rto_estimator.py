"""Retransmission timer for an answer that may have been lost (RFC 6298)."""

from __future__ import annotations

GAIN, DEVIATION_GAIN, DEVIATIONS = 1 / 8, 1 / 4, 4  # RFC 6298


class RtoEstimator:
    """What answers took of late and four times their deviation (RFC 6298), in s, from `least_s` to
    `most_s`; the most while none has come."""

    def __init__(self, least_s: float, most_s: float) -> None:
        self._least_s, self._most_s = least_s, most_s
        self._smoothed_s = self._deviation_s = most_s

    def heard(self, took_s: float) -> None:
        """An answer took so long."""
        if self._smoothed_s == self._most_s:
            self._smoothed_s, self._deviation_s = took_s, took_s / 2
            return
        self._deviation_s += DEVIATION_GAIN * (abs(took_s - self._smoothed_s) - self._deviation_s)
        self._smoothed_s += GAIN * (took_s - self._smoothed_s)

    @property
    def wait_s(self) -> float:
        return min(
            max(self._least_s, self._smoothed_s + DEVIATIONS * self._deviation_s), self._most_s
        )
