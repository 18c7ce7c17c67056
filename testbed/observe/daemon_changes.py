"""What changes at a run's daemons: the counters that they show, and what they log."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from weft.daemons.core.node_config import routers
from weft.testbed.linux import clock
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon.counters import COLUMNS, FILE, WORDS, DaemonCounters
from weft.testbed.observe.stream_event import StreamEvent
from weft.testbed.plan.plane_selection import has_daemons

# What of a daemon's row is told when it changes, by the name under which it is told.
TOLD = {
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
# as daemons/control/hello.py notes it
NEIGHBOUR = re.compile(r"port (\d+): neighbour (\S+) (up|down): (.*)")
LOOK_S = 0.2  # between two looks at the logs
MOST_BYTES = 1 << 15  # of one log, taken in at once
MOST_LINES = 200  # of all logs, told at once
MONOTONIC = 1  # the column of a line that says when, by the monotonic clock


class DaemonRows:
    """Tells which daemons' counters have changed."""

    def __init__(self, network: RunningNetwork) -> None:
        scheme = network.run.journal["scheme"]
        self._nodes = list(routers(network.topology)) if has_daemons(scheme) else []
        self._names = network.plan.names
        self._counters = DaemonCounters(network.run.directory / FILE) if self._nodes else None
        self._columns = np.array([COLUMNS[name] for name in TOLD.values()])
        self._told = np.zeros((len(self._nodes), len(TOLD)), dtype=np.int64) - 1

    def events(self) -> list[StreamEvent]:
        """A `daemons` event with the rows that differ from what was told; at first, of all."""
        if self._counters is None:
            return []
        # Copied, for a view would keep the file mapped.
        words = np.array(self._counters.words(), dtype=np.int64).reshape(-1, WORDS)
        rows = words[self._nodes][:, self._columns]
        changed = np.flatnonzero((rows != self._told).any(axis=1))
        if not len(changed):
            return []
        self._told = rows
        told = {self._names[self._nodes[i]]: _row(rows[i].tolist()) for i in changed.tolist()}
        return [{"event": "daemons", "at_s": clock.monotonic(), "daemons": told}]

    def close(self) -> None:
        if self._counters:
            self._counters.close()


def _row(values: list[int]) -> dict[str, Any]:
    told: dict[str, Any] = dict(zip(TOLD, values, strict=True))
    return told | {"pid": told["pid"] or None, "converged": bool(told["converged"])}


class LogLines:
    """Tells what is added to the logs of a run, from when this begins.

    skipped: lines that were not told, since there were too many.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._at: dict[str, int] = {}
        self._next_s = 0.0
        self._sizes(first=True)

    def _sizes(self, *, first: bool = False) -> list[tuple[str, int, int]]:
        """(path, from where, to where) of each log that has more than was read."""
        found = []
        with suppress(FileNotFoundError), os.scandir(self._directory) as entries:
            for entry in entries:
                if not entry.name.endswith(".log"):
                    continue
                size, before = entry.stat().st_size, self._at.get(entry.path, 0)
                if first:
                    self._at[entry.path] = size
                elif size > before:
                    found.append((entry.path, before, size))
        return found

    def events(self) -> list[StreamEvent]:
        """The `log` events of new lines, in order of time; and a `neighbour` event for each line
        that says that a daemon has found a neighbour, or lost one."""
        now = clock.monotonic()
        if now < self._next_s:
            return []
        self._next_s = now + LOOK_S
        found: list[StreamEvent] = []
        for path, before, size in self._sizes():
            data = self._read(path, max(before, size - MOST_BYTES), size)
            end = data.rfind(b"\n") + 1
            self._at[path] = size - len(data) + end
            found += _lines(Path(path).stem, data[:end].decode(errors="replace"), now)
        found.sort(key=lambda event: float(event["at_s"]))
        neighbours = [event for line in found if (event := neighbour(line))]
        if len(found) > MOST_LINES:
            skipped = len(found) - MOST_LINES
            found = found[-MOST_LINES:]
            found.insert(
                0,
                {
                    "event": "log",
                    "at_s": found[0]["at_s"],
                    "node": "",
                    "text": f"{skipped} lines left out",
                },
            )
        return neighbours + found

    def _read(self, path: str, start: int, end: int) -> bytes:
        with open(path, "rb") as file:
            file.seek(start)
            return file.read(end - start)


def _lines(node: str, text: str, now: float) -> list[StreamEvent]:
    """A `log` event for each line; those of a traceback have the time of the line before them."""
    found: list[StreamEvent] = []
    at = now
    for line in text.splitlines():
        columns = line.split(" ", MONOTONIC + 1)
        with suppress(IndexError, ValueError):
            at, line = float(columns[MONOTONIC]), columns[MONOTONIC + 1]
        found.append({"event": "log", "at_s": at, "node": node, "text": line})
    return found


def neighbour(line: StreamEvent) -> StreamEvent | None:
    """The `neighbour` event that a `log` event tells of, None if it tells of something else."""
    if not (match := NEIGHBOUR.fullmatch(line["text"])):
        return None
    port, other, state, why = match.groups()
    told = {"port": int(port), "neighbour": other, "state": state, "why": why}
    return {"event": "neighbour", "at_s": line["at_s"], "node": line["node"], **told}
