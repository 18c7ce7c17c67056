"""Counters of each node, in a file that every process of a run maps, and their writer in a daemon.

A daemon counts in its row, so that others read the counters at no cost to it.  A counter is one
aligned 64-bit word, read whole; two counters of a row may be read before and after a change.
"""

from __future__ import annotations

import errno
import mmap
import os
import traceback
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.daemons.core.actions import Action
from weft.daemons.core.contract import Adjacencies
from weft.testbed.runs import private_files

if TYPE_CHECKING:
    from weft.testbed.node_daemon.sealed_channel import PortChannel

FILE = "counters"
# upper ends of all but the last class
LATENESS_US = (100, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000)
# these count through all daemons of a node
OF_NODE = ("required", "deaths", "restarts")
MOST_TRACEBACKS = 8  # logged


@dataclass(frozen=True, slots=True)
class CounterRow:
    """The counters of one node; all 0 before its first daemon.

    pid: process of the daemon; 0 if there is none.
    neighbours_expected, neighbours_up: adjacencies, a neighbour at a port each.
    routes: reachable prefixes.
    converged: 1 if every neighbour that the topology promises is up and its routes are set.
    sent, received: packets.
    dropped: packets that could not be sent.
    losses: neighbours lost since the daemon started.
    began_ns, changed_ns, lost_ns: monotonic clock at the start, at the last change of a neighbour
        or route, and at the last loss of a neighbour.
    ticks: ticks of the state machine.
    late_ticks: ticks that ran more than one interval late, as all do in twice the interval.
    worst_late_us: lateness of the latest tick.
    netlink_errors: changes that the kernel refused.
    packets_failed: packets dropped because handling them raised an exception.
    refused: packets dropped before decoding, for a reason in node_daemon/sealed_channel.py.
    real_time: 1 if the process has real-time priority.
    required: 1 if the supervisor keeps the daemon running.
    deaths: ends of the daemon that were not requested.
    restarts: restarts by the supervisor after a death.
    lateness: ticks by lateness, in classes divided by LATENESS_US; subtract two readings for an
        interval.
    """

    pid: int
    neighbours_expected: int
    neighbours_up: int
    routes: int
    converged: int
    sent: int
    received: int
    dropped: int
    losses: int
    began_ns: int
    changed_ns: int
    lost_ns: int
    ticks: int
    late_ticks: int
    worst_late_us: int
    netlink_errors: int
    packets_failed: int
    refused: int
    real_time: int
    required: int
    deaths: int
    restarts: int
    lateness: tuple[int, ...]


COLUMNS = {field.name: number for number, field in enumerate(fields(CounterRow))}
WORDS = len(COLUMNS) - 1 + len(LATENESS_US) + 1


class DaemonCounters:
    """The rows of a run, by node."""

    def __init__(self, file: Path, *, create_nodes: int | None = None) -> None:
        """Map `file`; with `create_nodes`, create it for so many nodes first.

        Raises:
            FileNotFoundError: no such file.
        """
        fd = private_files.open_file(
            file, os.O_RDWR | (os.O_CREAT | os.O_TRUNC if create_nodes else 0)
        )
        try:
            if create_nodes:
                os.ftruncate(fd, create_nodes * WORDS * 8)
            self._map = mmap.mmap(fd, 0)
        finally:
            os.close(fd)
        self._words = memoryview(self._map).cast("Q")

    def __len__(self) -> int:
        return len(self._words) // WORDS

    def cells(self, node: int) -> memoryview:
        """Return the writable words of a row: in the order of COLUMNS, `lateness` last."""
        return self._words[node * WORDS : (node + 1) * WORDS]

    def words(self) -> memoryview:
        """Return all rows in order of node, of WORDS each."""
        return self._words

    def row(self, node: int) -> CounterRow:
        words: list[Any] = self.cells(node).tolist()
        lateness = COLUMNS["lateness"]
        words[lateness:] = [tuple(words[lateness:])]
        return CounterRow(*words)

    def close(self) -> None:
        """Unmap the file."""
        self._words.release()
        self._map.close()


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


class LostPackets:
    """The lost packets of one daemon."""

    def __init__(
        self, counters: NodeCounters, log: Callable[[str], None], channels: Sequence[PortChannel]
    ) -> None:
        """counters: its row; log: writes a line; channels: of its ports."""
        self._counters = counters
        self._log = log
        self._refusals = [channel.dropped for channel in channels]
        self._dropped: Counter[str] = Counter()
        self._refused = 0
        self._raised: set[str] = set()

    def on_sending(self, error: OSError) -> None:
        """Count a packet that could not be sent; most often its device is down."""
        why = errno.errorcode.get(error.errno or 0, str(error))
        if why not in self._dropped:
            self._log(f"packets dropped on sending: {error.strerror}")
        self._dropped[why] += 1
        self._counters.set(dropped=self._dropped.total())

    def on_handling(self, what: str = "packet") -> None:
        """Count a packet, or another `what`, that raised the current exception; log new ones."""
        self._counters.add("packets_failed")
        text = traceback.format_exc().rstrip()
        if text not in self._raised and len(self._raised) < MOST_TRACEBACKS:
            self._raised.add(text)
            self._log(f"a {what} was dropped because it raised this exception:\n{text}")

    def guarded(
        self, what: str, handle: Callable[..., Sequence[Action]], *arguments: object
    ) -> Sequence[Action]:
        """Return `handle(*arguments)`; if it raises, count a lost `what` and return no actions."""
        try:
            return handle(*arguments)
        except Exception:
            self.on_handling(what)
            return ()

    def look_for_refused(self) -> None:
        """Update the count of packets that the channels refused; called at every tick."""
        if any(self._refusals):
            self._count_refused()

    def _count_refused(self) -> None:
        reasons = self._refused_by_reason()
        if reasons.total() == self._refused:
            return
        if not self._refused:
            self._log(f"packets refused: {', '.join(reasons)}; `weft status` counts them")
        self._refused = reasons.total()
        self._counters.set(refused=self._refused)

    def status(self) -> dict[str, Any]:
        """Return the counts by reason, JSON-able."""
        return {
            "dropped": dict(self._dropped),
            "refused": dict(self._refused_by_reason()),
        }

    def _refused_by_reason(self) -> Counter[str]:
        """Return the refused packets of all channels, by reason."""
        return sum(self._refusals, Counter())
