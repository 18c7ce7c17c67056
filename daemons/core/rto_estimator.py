"""Retransmission timer for an answer that may have been lost (RFC 6298)."""

from __future__ import annotations

GAIN, DEVIATION_GAIN, DEVIATIONS = 1 / 8, 1 / 4, 4  # RFC 6298


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
