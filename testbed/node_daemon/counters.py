"""One row of counters for each node, in a file that every process of a run maps.

A daemon counts right in its row, so that reading costs it nothing and needs no answer: a caller
that waits for convergence reads it, and fidelity too.  A counter is one aligned 64-bit word, so
that each is whole, though a row may be caught between two of its changes.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from weft.testbed.runs import private_files

FILE = "counters"
# upper ends of all but the last class
LATENESS_US = (100, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000)


@dataclass(frozen=True, slots=True)
class CounterRow:
    """What the daemon of one node tells, and of it; all 0 when none has run.

    pid: of the process that serves it; 0 when it has ended.
    neighbours_expected, neighbours_up: adjacencies, a neighbour at a port each.
    routes: prefixes forwarded to somebody.
    converged: 1 when every neighbour that the topology promises is up and every route that they
        give is set.
    sent, received: packets.
    dropped: packets that could not leave.
    losses: neighbours that were up and are not any more, since the daemon began.
    began_ns, changed_ns, lost_ns: monotonic clock at the start, at the last change of a neighbour
        or route, at the last loss of a neighbour.
    ticks: how often it was time to do something.
    late_ticks: how often later than there is time between two ticks.
    worst_late_us: the latest tick since the daemon began.
    netlink_errors: changes that the kernel refused.
    packets_failed: packets dropped because handling them raised an exception.
    refused: packets dropped before decoding, for a reason in node_daemon/sealed_channel.py.
    real_time: 1 if the process has real-time priority.
    wanted: 1 while the supervisor is to see to it that the daemon runs.
    deaths: how often it has ended though nobody asked it to.
    restarts: how often the supervisor has started it again after that.
    lateness: ticks by lateness, in the classes that LATENESS_US divides; subtract two readings for
        a window of time.
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
    wanted: int
    deaths: int
    restarts: int
    lateness: tuple[int, ...]


COLUMNS = {field.name: number for number, field in enumerate(fields(CounterRow))}
WORDS = len(COLUMNS) - 1 + len(LATENESS_US) + 1
# of the node, through all its daemons: those do not begin at 0 with each
OF_NODE = ("wanted", "deaths", "restarts")


class DaemonCounters:
    """The rows of a run's nodes, 0 up to how many there are."""

    def __init__(self, file: Path, *, create_nodes: int | None = None) -> None:
        """Map `file`; make it anew, for so many nodes, if `create_nodes`.  FileNotFoundError if it
        is not there."""
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
        """The words of `node`'s row, to be written: by COLUMNS, and from `lateness` on a class
        each."""
        return self._words[node * WORDS : (node + 1) * WORDS]

    def words(self) -> memoryview:
        """All rows, one after the other, WORDS each."""
        return self._words

    def row(self, node: int) -> CounterRow:
        """What `node`'s daemon tells now."""
        told: list[Any] = self.cells(node).tolist()
        told[COLUMNS["lateness"] :] = [tuple(told[COLUMNS["lateness"] :])]
        return CounterRow(*told)

    def close(self) -> None:
        """Let go of the file."""
        self._words.release()
        self._map.close()
