"""Decide how rarely a process sends hellos, by the processor time that it wants and gets.

Daemons have real-time priority, and the kernel leaves that all but a part of each second (950 ms by
default, sched_rt_runtime_us).  Once it is spent, all daemons stand still for the rest of the
second; long before, they wait for each other.  Hellos are then late, neighbours seem dead, and
routes without them cost more time still.

A process that shares a processor with few others sees this by the time in which it runs, one of
many by the time in which it waits to run: twenty on two processors without a moment's rest ran for
a tenth of the time and waited for six tenths.  A process that runs for more than MOST_RUN of its
share, or waits for more than MOST_WAIT of the time, in BUSY_LOOKS, doubles the interval of its
hellos; one with less than half of both in CALM_LOOKS halves it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from math import inf
from pathlib import Path

from weft.testbed.node_daemon import watchdog
from weft.testbed.node_daemon.watchdog import ProcessorUse

LOOK_S = 0.25
MOST_RUN, MOST_WAIT = 0.75, 0.3  # the rest is for what comes at once
BUSY_LOOKS, CALM_LOOKS = 2, 4  # in a row: a single computation of routes changes nothing
MOST_FACTOR = 32  # neighbours of daemons with hellos of 30 ms then notice a death in 3 s
SETTINGS = Path("/proc/sys/kernel")


def own_share() -> float:
    """Return the part of a processor's time that the scheduler leaves to this process, 0 to 1."""
    if os.sched_getscheduler(0) != os.SCHED_FIFO:
        return 1.0
    runtime_us, period_us = (
        int((SETTINGS / f"sched_rt_{name}_us").read_text()) for name in ("runtime", "period")
    )
    return runtime_us / period_us if 0 < runtime_us < period_us else 1.0


def own_use() -> ProcessorUse:
    """Return what this process has used."""
    return watchdog.processor_use(os.getpid())


class Pace:
    """The factor by which a process lengthens the interval of its hellos.

    factor: a power of 2.
    look_s: time of the next look.
    """

    def __init__(self, share: float, read_use: Callable[[], ProcessorUse] = own_use) -> None:
        self.factor = 1
        self.look_s = -inf
        self._share = share
        self._read = read_use
        self._use = ProcessorUse("R", 0, 0)
        self._last_s = inf
        self._busy_looks = self._calm_looks = 0

    def look(self, now: float) -> bool:
        """Read what the process has used since the last look; return True if `factor` changes."""
        use, before = self._read(), self._use
        passed_ns = (now - self._last_s) * 1e9
        self._use, self._last_s, self.look_s = use, now, now + LOOK_S
        if passed_ns <= 0:  # the first look
            return False
        run = (use.ran_ns - before.ran_ns) / (passed_ns * self._share * MOST_RUN)
        load = max(run, (use.waited_ns - before.waited_ns) / (passed_ns * MOST_WAIT))
        self._busy_looks = self._busy_looks + 1 if load > 1 else 0
        self._calm_looks = self._calm_looks + 1 if load < 0.5 else 0
        factor = self.factor
        if self._busy_looks >= BUSY_LOOKS:
            factor = min(2 * factor, MOST_FACTOR)
        elif self._calm_looks >= CALM_LOOKS:
            factor = max(factor // 2, 1)
        changes = factor != self.factor
        if changes:
            self.factor, self._busy_looks, self._calm_looks = factor, 0, 0
        return changes
