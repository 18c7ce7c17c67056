"""Decide when a dead daemon is restarted, and which process hangs; the supervisor acts on it.

A daemon is restarted after FIRST_S, and after twice as long for each death within FORGIVEN_S of the
last, up to LONGEST_S.  So a daemon that cannot live costs little, and one that died once is back
before its neighbours have converged without it.  A process hangs if its daemons have not ticked in
HANGS_AFTER intervals that it could have used (usable_time.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from weft.testbed.node_daemon.usable_time import Silences

FIRST_S, LONGEST_S, FORGIVEN_S = 0.1, 30.0, 60.0
LOOK_S, HANGS_AFTER = 1.0, 5


class Restarts:
    """The daemons to restart, by node, and when; all times are seconds of one clock."""

    def __init__(self) -> None:
        self._due: dict[int, float] = {}
        self._deaths: dict[int, tuple[int, float]] = {}  # deaths in a row, time of the last

    def died(self, node: int, now: float) -> float:
        """Schedule a restart after a death or a failed start; return the delay in seconds."""
        count, last = self._deaths.get(node, (0, -inf))
        count = count + 1 if now - last <= FORGIVEN_S else 1
        self._deaths[node] = count, now
        delay = min(FIRST_S * (1 << min(count - 1, 30)), LONGEST_S)
        self._due[node] = now + delay
        return delay

    def forget(self, node: int) -> None:
        """Cancel the restart of the daemon of `node`."""
        self._due.pop(node, None)

    @property
    def deadline(self) -> float:
        """Time of the next restart; inf if none is due."""
        return min(self._due.values(), default=inf)

    def take(self, now: float) -> list[int]:
        """Remove and return the nodes whose daemons are due."""
        due = sorted(node for node, due_s in self._due.items() if due_s <= now)
        for node in due:
            del self._due[node]
        return due


class Hangs:
    """Find the processes that hang, by how often each has ticked."""

    def __init__(self, silences: Silences | None = None) -> None:
        self._silences = silences or Silences()
        self._ticks: dict[int, int] = {}

    def look(self, ticks: Mapping[int, int], look_s: float) -> dict[int, str]:
        """Return the processes that hang, and why.

        ticks: how often each process that runs has ticked; one that never has ticked has no timer.
        look_s: the time between two looks.
        """
        hanging = {}
        for pid, count in ticks.items():
            if not count or count != self._ticks.get(pid):
                self._silences.end(pid)
            elif self._silences.look(pid, look_s) >= HANGS_AFTER * look_s:
                hanging[pid] = self._silences.explain(pid)
        self._ticks = dict(ticks)
        self._silences.keep(ticks.keys())
        return hanging
