"""Changes of a run's daemons: their counters, their neighbours, and new lines of their logs."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from weft.daemons.core.node_config import routers
from weft.testbed.linux import clock
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon.counters import COLUMNS, FILE, WORDS, DaemonCounters
from weft.testbed.node_daemon.daemon_files import NEIGHBOUR_FILE
from weft.testbed.observe.stream_event import StreamEvent
from weft.testbed.plan.plane_selection import has_daemons

# key in the event -> column of the counters
REPORTED_COLUMNS = {
    "pid": "pid",
    "neighbours": "neighbours_up",
    "of": "neighbours_expected",
    "routes": "routes",
    "converged": "converged",
    "losses": "losses",
    "deaths": "deaths",
    "restarts": "restarts",
    "refused": "refused",
    "packets_failed": "packets_failed",
}
SCAN_INTERVAL_S = 0.2
MOST_BYTES = 1 << 15  # of one log in one scan
MOST_LINES = 200  # of all logs in one scan
MONOTONIC_COLUMN = 1  # of a log line


class DaemonRows:
    """Report daemons whose counters changed."""

    def __init__(self, network: RunningNetwork) -> None:
        scheme = network.run.journal["scheme"]
        self._nodes = list(routers(network.topology)) if has_daemons(scheme) else []
        self._names = network.plan.names
        self._counters = DaemonCounters(network.run.directory / FILE) if self._nodes else None
        self._columns = np.array([COLUMNS[name] for name in REPORTED_COLUMNS.values()])
        self._rows = np.zeros((len(self._nodes), len(REPORTED_COLUMNS)), dtype=np.int64) - 1

    def events(self) -> list[StreamEvent]:
        """Return one `daemons` event with the rows that changed since the last call, or nothing.

        The first call reports all rows.
        """
        if self._counters is None:
            return []
        # a copy: a view would keep the file mapped
        words = np.array(self._counters.words(), dtype=np.int64).reshape(-1, WORDS)
        rows = words[self._nodes][:, self._columns]
        changed = np.flatnonzero((rows != self._rows).any(axis=1)).tolist()
        if not changed:
            return []
        self._rows = rows
        daemons = {self._names[self._nodes[i]]: _row(rows[i].tolist()) for i in changed}
        return [{"event": "daemons", "at_s": clock.monotonic(), "daemons": daemons}]

    def close(self) -> None:
        if self._counters:
            self._counters.close()


def _row(values: list[int]) -> dict[str, Any]:
    row: dict[str, Any] = dict(zip(REPORTED_COLUMNS, values, strict=True))
    return row | {"pid": row["pid"] or None, "converged": bool(row["converged"])}


class DaemonLogs:
    """Report lines that daemons add to the files in `directory` after construction.

    These are log lines and changes of neighbours.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._next_s = 0.0
        # bytes of each file that were read
        self._offsets = dict(self._sizes())

    def events(self) -> list[StreamEvent]:
        """Return a `neighbour` event for each change, then `log` events in order of time.

        At most MOST_LINES lines are returned; an event with their number replaces the others.
        """
        now = clock.monotonic()
        if now < self._next_s:
            return []
        self._next_s = now + SCAN_INTERVAL_S
        changes: list[StreamEvent] = []
        lines: list[StreamEvent] = []
        for path, size in self._sizes():
            if path.name == NEIGHBOUR_FILE:
                changes += neighbour_events(self._new_lines(path, size, size))
            else:
                lines += log_events(path.stem, self._new_lines(path, size, MOST_BYTES), now)
        lines.sort(key=lambda event: float(event["at_s"]))
        return changes + _without_flood(lines)

    def _sizes(self) -> list[tuple[Path, int]]:
        """Return path and size in bytes of each log and of the file of neighbours."""
        with suppress(FileNotFoundError), os.scandir(self._directory) as entries:
            return [
                (Path(entry.path), entry.stat().st_size)
                for entry in entries
                if entry.name.endswith(".log") or entry.name == NEIGHBOUR_FILE
            ]
        return []

    def _new_lines(self, path: Path, size: int, most: int) -> list[str]:
        """Return the complete new lines among the last `most` bytes of the file."""
        start = max(self._offsets.get(path, 0), size - most)
        if start >= size:
            return []
        with path.open("rb") as file:
            file.seek(start)
            data = file.read(size - start)
        complete = data[: data.rfind(b"\n") + 1]
        self._offsets[path] = start + len(complete)
        return complete.decode(errors="replace").splitlines()


def _without_flood(lines: list[StreamEvent]) -> list[StreamEvent]:
    skipped = len(lines) - MOST_LINES
    if skipped <= 0:
        return lines
    lines = lines[skipped:]
    text = f"{skipped} lines left out"
    return [{"event": "log", "at_s": lines[0]["at_s"], "node": "", "text": text}, *lines]


def neighbour_events(lines: list[str]) -> list[StreamEvent]:
    """Return the `neighbour` events that daemons wrote as JSON."""
    events: list[StreamEvent] = []
    for line in lines:
        with suppress(ValueError):  # a full disk cuts lines
            events.append({"event": "neighbour", **json.loads(line)})
    return events


def log_events(node: str, lines: list[str], now: float) -> list[StreamEvent]:
    """Return a `log` event for each line; a line of a traceback has the time of the line before."""
    events: list[StreamEvent] = []
    at_s = now
    for text in lines:
        columns = text.split(" ", MONOTONIC_COLUMN + 1)
        with suppress(IndexError, ValueError):
            at_s = float(columns[MONOTONIC_COLUMN])
            text = columns[MONOTONIC_COLUMN + 1]
        events.append({"event": "log", "at_s": at_s, "node": node, "text": text})
    return events
