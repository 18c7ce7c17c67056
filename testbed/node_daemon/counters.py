"""One row of counters for each node, in a file that every process of a run maps.

A daemon counts in its row, so that others read the counters at no cost to it.  A counter is one
aligned 64-bit word, read whole; two counters of a row may be read before and after a change.
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
# these count through all daemons of a node
OF_NODE = ("required", "deaths", "restarts")


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
        """Return the counters of `node`."""
        words: list[Any] = self.cells(node).tolist()
        lateness = COLUMNS["lateness"]
        words[lateness:] = [tuple(words[lateness:])]
        return CounterRow(*words)

    def close(self) -> None:
        """Unmap the file."""
        self._words.release()
        self._map.close()
