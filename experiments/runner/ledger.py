"""What became of each run of a sweep: a SQLite file beside the results.

A run is entered after its files are in place, so that whatever the ledger says is done can be read.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import NamedTuple

from experiments.runner.definition import Run

SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    id TEXT PRIMARY KEY,
    experiment TEXT NOT NULL,
    run TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('done', 'failed')),
    reason TEXT NOT NULL DEFAULT '',
    traceback TEXT NOT NULL DEFAULT '',
    wall_s REAL,
    ended_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
)
"""
BUSY_S = 30.0  # another sweep may be writing to the same ledger


class Failure(NamedTuple):
    """A run that could not be measured: why in one line, and where in the code."""

    reason: str
    traceback: str


def reason(error: BaseException) -> str:
    """What went wrong, in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")


class Ledger:
    """The state of every run that ended, by its id.  Several sweeps may write to one ledger."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.db = sqlite3.connect(path, timeout=BUSY_S)
        # A commit need not reach the disk at once: the result files do, and from them the ledger can be made again.
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = NORMAL")
        with self.db:
            self.db.execute(SCHEMA)

    def done(self, run: Run, wall_s: float | None) -> None:
        """`run` is stored; `wall_s` is None if the sweep that stored it was killed before it could say so."""
        self._enter(run, "done", Failure("", ""), wall_s)

    def failed(self, run: Run, failure: Failure, wall_s: float) -> None:
        """`run` could not be measured."""
        self._enter(run, "failed", failure, wall_s)

    def _enter(self, run: Run, state: str, failure: Failure, wall_s: float | None) -> None:
        columns = "id, experiment, run, state, reason, traceback, wall_s"
        row = (run.id, run.experiment, str(run), state, *failure, wall_s)
        with self.db:
            self.db.execute(f"INSERT OR REPLACE INTO runs ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def states(self, experiment: str) -> dict[str, str]:
        """done or failed, for every run of `experiment` that ended."""
        return dict(self.db.execute("SELECT id, state FROM runs WHERE experiment = ?", (experiment,)))

    def failures(self, experiment: str) -> dict[str, Failure]:
        """The failed runs of `experiment` by their ids."""
        query = "SELECT id, reason, traceback FROM runs WHERE experiment = ? AND state = 'failed'"
        return {run: Failure(why, where) for run, why, where in self.db.execute(query, (experiment,))}
