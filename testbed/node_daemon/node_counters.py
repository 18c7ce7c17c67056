"""What a daemon writes into its row of the run's counters (counters.py)."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from weft.daemons.core.contract import Adjacencies
from weft.testbed.node_daemon.counters import COLUMNS, LATENESS_US, OF_NODE

TICKS, LATENESS, WORST_LATE_US, LATE_TICKS, SENT, RECEIVED = (
    COLUMNS[name]
    for name in ("ticks", "lateness", "worst_late_us", "late_ticks", "sent", "received")
)
OF_NODE_AT = {COLUMNS[name] for name in OF_NODE}


class NodeCounters:
    """The row `cells`, from 0 on but for what is of the node.

    interval_s: a tick that is later than this counts as late.
    """

    def __init__(self, cells: memoryview, interval_s: float) -> None:
        self._cells = cells
        for at in range(len(cells)):
            if at not in OF_NODE_AT:
                cells[at] = 0
        self._interval_s = interval_s
        self._worst_late_us = self._losses = 0

    def set(self, **values: int) -> None:
        """Write into these columns."""
        for name, value in values.items():
            self._cells[COLUMNS[name]] = value

    def add(self, name: str) -> None:
        """Count one more in this column."""
        self._cells[COLUMNS[name]] += 1

    def tick(self, late_s: float, sent: int, received: int) -> None:
        """A tick was so late; so many packets have been sent and received in all."""
        cells, late_us = self._cells, int(late_s * 1e6)
        cells[SENT], cells[RECEIVED] = sent, received
        cells[TICKS] += 1
        cells[LATENESS + bisect_left(LATENESS_US, late_us)] += 1
        if late_us > self._worst_late_us:
            cells[WORST_LATE_US] = self._worst_late_us = late_us
        if late_s > self._interval_s:
            cells[LATE_TICKS] += 1

    def show(self, adjacencies: Adjacencies, routes: int, now: float) -> None:
        """Write what changes seldom, after it has changed."""
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
        """The row, JSON-able."""
        count = {name: int(self._cells[at]) for name, at in COLUMNS.items() if name != "lateness"}
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
