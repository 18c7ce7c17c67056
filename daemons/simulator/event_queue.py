"""Queue of events in simulated time."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf

PACKET, TICK, CALL = range(3)  # kinds of events, in their order at one instant


class EventQueue:
    """Pending calls, ordered by time, kind, and order of push(); time begins at 0."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, int, Callable[..., None], tuple[object, ...]]] = []
        self._number = count()

    def push(self, time_s: float, kind: int, call: Callable[..., None], *arguments: object) -> None:
        """Schedule `call` with these arguments at `time_s`, in seconds or the unit of all users."""
        heappush(self._heap, (time_s, kind, next(self._number), call, arguments))

    @property
    def next_s(self) -> float:
        """Return the time of the next call; infinite if none is pending."""
        return self._heap[0][0] if self._heap else inf

    def run_until(self, time_s: float) -> None:
        """Run all events up to and including `time_s`."""
        heap = self._heap
        while heap and heap[0][0] <= time_s:
            self.now, _, _, call, arguments = heappop(heap)
            call(*arguments)
        self.now = max(self.now, time_s)
