"""Simulated time: what is to happen, in order."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

PACKET, TICK, CALL = range(3)  # kinds of event, in the order in which they come at one instant


class EventQueue:
    """Calls that wait in a heap, ordered by time and kind, and otherwise as they were pushed; time
    begins at 0."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, int, Callable[..., None], tuple[object, ...]]] = []
        self._number = count()

    def push(self, time_s: float, kind: int, call: Callable[..., None], *given: object) -> None:
        """Do `call` with what is `given` when it is `time_s`: seconds, or what else all users of
        the queue count in."""
        heappush(self._heap, (time_s, kind, next(self._number), call, given))

    def run_until(self, time_s: float) -> None:
        """Let everything happen up to and including `time_s`."""
        heap = self._heap
        while heap and heap[0][0] <= time_s:
            self.now, _, _, call, given = heappop(heap)
            call(*given)
        self.now = max(self.now, time_s)
