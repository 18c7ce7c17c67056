"""Write a daemon's row of the run's counters (counters.py)."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from weft.daemons.core.contract import Adjacencies
from weft.testbed.node_daemon.counters import COLUMNS, LATENESS_US, OF_NODE

TICKS, LATENESS, WORST_LATE_US, LATE_TICKS, SENT, RECEIVED = (
    COLUMNS[name]
    for name in ("ticks", "lateness", "worst_late_us", "late_ticks", "sent", "received")
)
NODE_COLUMNS = {COLUMNS[name] for name in OF_NODE}


class NodeCounters:
    """The row `cells`, reset except for the counters of the node.

    interval_s: a tick that is later than this counts as late.
    """

    def __init__(self, cells: memoryview, interval_s: float) -> None:
        self._cells = cells
        for number in range(len(cells)):
            if number not in NODE_COLUMNS:
                cells[number] = 0
        self._interval_s = self._permitted_s = interval_s
        self._worst_late_us = 0
        self._losses = 0

    def set(self, **values: int) -> None:
        """Set these columns."""
        for name, value in values.items():
            self._cells[COLUMNS[name]] = value

    def add(self, name: str) -> None:
        """Add one to this column."""
        self._cells[COLUMNS[name]] += 1

    def tick(self, late_s: float, sent: int, received: int) -> None:
        """Count a tick by its lateness; `sent` and `received` are totals of packets."""
        cells = self._cells
        late_us = int(late_s * 1e6)
        cells[SENT] = sent
        cells[RECEIVED] = received
        cells[TICKS] += 1
        cells[LATENESS + bisect_left(LATENESS_US, late_us)] += 1
        if late_us > self._worst_late_us:
            cells[WORST_LATE_US] = self._worst_late_us = late_us
        if late_s > self._permitted_s:
            cells[LATE_TICKS] += 1

    def slow_down(self, factor: int) -> None:
        """Count ticks of a timer with `factor` times the interval by the interval itself."""
        self._permitted_s = self._interval_s * (2 - factor)

    def show(self, adjacencies: Adjacencies, routes: int, now: float) -> None:
        """Write the counts of neighbours and routes, after one has changed."""
        promised, up, lost = adjacencies
        self.set(
            neighbours_expected=promised,
            neighbours_up=up,
            routes=routes,
            losses=lost,
            changed_ns=int(now * 1e9),
        )
        if lost != self._losses:
            self._losses = lost
            self.set(lost_ns=int(now * 1e9))

    def status(self) -> dict[str, Any]:
        """Return the row, JSON-able."""
        count = {name: int(self._cells[i]) for name, i in COLUMNS.items() if name != "lateness"}
        lateness = [int(ticks) for ticks in self._cells[LATENESS:]]
        classes = zip((*LATENESS_US, 0), lateness, strict=True)
        return {
            **count,
            "converged": bool(count["converged"]),
            "real_time": bool(count["real_time"]),
            "lateness": {
                f"<={us}us" if us else f">{LATENESS_US[-1]}us": ticks for us, ticks in classes
            },
        }
