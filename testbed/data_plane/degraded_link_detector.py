"""Detection of degraded links by the throughput of a switch's own queues.

If a backlog takes a healthy link longer than one sampling interval to drain, the link was busy for
the whole interval.  A link that then sends less than `LEAST_FRACTION` of its rate, twice in a row,
is degraded.  Traffic leaves a degraded link, so its recovery cannot be measured: it is tried again
after `HOLD_S`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

LEAST_FRACTION = 0.7
LOOKS = 2  # slow samples in a row that make a link degraded
HOLD_S = 10.0


class PortSample(NamedTuple):
    """A port's bytes sent in total and bytes waiting, at a time."""

    at_s: float
    sent_bytes: int
    waiting_bytes: int


class Meter:
    """Detector for `ports`, by number, whose links have `rate_bps`."""

    def __init__(self, ports: Iterable[int], rate_bps: int) -> None:
        self._rate_bps = rate_bps
        self._before: dict[int, PortSample] = {}
        self._slow_samples: dict[int, int] = dict.fromkeys(ports, 0)  # in a row
        self._retry_s: dict[int, float] = {}  # by degraded port

    def judge(self, counters: Mapping[int, tuple[int, int]], now: float) -> dict[int, bool]:
        """Return ports whose link has become degraded (True) or is to be tried again (False).

        Args:
            counters: bytes sent and bytes waiting at each port, by port number.
            now: time in seconds.
        """
        changed = {port: False for port, retry_s in self._retry_s.items() if retry_s <= now}
        for port in changed:
            del self._retry_s[port]
        for port, (sent_bytes, waiting_bytes) in counters.items():
            before = self._before.get(port)
            sample = PortSample(now, sent_bytes, waiting_bytes)
            self._before[port] = sample
            if before is None or port in self._retry_s:
                continue
            is_slow = self._is_slow(before, sample)
            self._slow_samples[port] = self._slow_samples[port] + 1 if is_slow else 0
            if self._slow_samples[port] >= LOOKS:
                self._slow_samples[port] = 0
                self._retry_s[port] = now + HOLD_S
                changed[port] = True
        return changed

    def _is_slow(self, before: PortSample, sample: PortSample) -> bool:
        possible_bytes = self._rate_bps / 8 * (sample.at_s - before.at_s)
        if before.waiting_bytes <= possible_bytes:
            return False
        return sample.sent_bytes - before.sent_bytes < LEAST_FRACTION * possible_bytes
