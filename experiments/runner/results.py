"""Results on disk: one SQLite file for a folder of results, results/results.sqlite.

It holds what became of each run: its row, its provenance, and if it could not be measured, why.  A
run is entered in one transaction, so that it is stored whole or not at all at whatever moment the
sweep was killed.  Several processes may work on one file: a process claims a run before it measures
it, and a claim ends with the process.

The file is made under another name, together with the results of the old form that lie there, and
then put in place.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any

from weft.experiments.runner import old_results
from weft.experiments.runner.definition import Experiment, Result, Row, Run
from weft.experiments.runner.failures import RunFailure
from weft.experiments.runner.ownership import given_back
from weft.experiments.runner.processes import lives, myself
from weft.experiments.runner.rows import checksum, order, provenance_of, row_of, text_of

NAME = "results.sqlite"
APPLICATION = int.from_bytes(b"weft")  # what `file` reads in the header
VERSION = 1  # of the schema
BUSY_S = 60.0  # while another process writes
SCHEMA = f"""
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    experiment TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('done', 'failed')),
    content TEXT NOT NULL,
    row TEXT NOT NULL DEFAULT '',
    provenance TEXT NOT NULL DEFAULT '',
    reason TEXT NOT NULL DEFAULT '',
    traceback TEXT NOT NULL DEFAULT '',
    wall_s REAL,
    ended_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    checksum TEXT NOT NULL
);
CREATE INDEX runs_of_experiment ON runs (experiment, state);
CREATE TABLE claims (id TEXT PRIMARY KEY, process TEXT NOT NULL);
"""
ENTER = """
INSERT OR REPLACE INTO runs (id, experiment, state, content, row, provenance, reason, traceback, wall_s, checksum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""  # noqa: E501


class RunClaim(Enum):
    """OURS: this process is to measure the run.  TAKEN: another one is measuring it.  STORED: it
    has its row."""

    OURS = "ours"
    TAKEN = "taken"
    STORED = "stored"


class Store:
    """The results under the directory `root`, which is made when the first comes.

    OSError, in a line that names the file, if it is damaged, cannot be written, is full or of a
    later weft.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.path = root, root / NAME

    def put(self, run: Run, result: Result, about: Mapping[str, Any], wall_s: float) -> None:
        """Store what `run` gave, `about` the code and the machine; ValueError or TypeError for what
        no row can hold."""
        row, provenance = (
            text_of(row_of(run, result)),
            text_of(provenance_of(run, result, about, wall_s)),
        )
        with self._writing() as db:
            enter(db, run, row, provenance, wall_s)
            db.execute("DELETE FROM claims WHERE id = ?", (run.id,))

    def fail(self, run: Run, failure: RunFailure, wall_s: float) -> None:
        """`run` could not be measured; a row that it has from before stays."""
        content = text_of(run.content)
        values = (
            run.id,
            run.experiment,
            "failed",
            content,
            "",
            "",
            *failure,
            wall_s,
            checksum(content, "", ""),
        )
        with self._writing() as db:
            if not done(db, run):
                db.execute(ENTER, values)
            db.execute("DELETE FROM claims WHERE id = ?", (run.id,))

    def claim(self, run: Run, *, again: bool = False) -> RunClaim:
        """Reserve `run` for this process until it is stored or given up; `again`: though it has a
        row."""
        with self._writing() as db:
            if not again and done(db, run):
                return RunClaim.STORED
            taken = db.execute("SELECT process FROM claims WHERE id = ?", (run.id,)).fetchone()
            if taken and taken[0] != myself() and lives(taken[0]):
                return RunClaim.TAKEN
            db.execute("INSERT OR REPLACE INTO claims VALUES (?, ?)", (run.id, myself()))
            return RunClaim.OURS

    def give_up(self) -> None:
        """End every claim of this process."""
        if self.path.exists():
            with self._writing() as db:
                db.execute("DELETE FROM claims WHERE process = ?", (myself(),))

    def __contains__(self, run: Run) -> bool:
        return self.states(run.experiment).get(run.id) == "done"

    def states(self, experiment: str) -> dict[str, str]:
        """done or failed, for every run of `experiment` that ended, by its id."""
        return dict(self._select("SELECT id, state FROM runs WHERE experiment = ?", experiment))

    def failures(self, experiment: str) -> dict[str, RunFailure]:
        """The failed runs of `experiment` by their ids."""
        query = "SELECT id, reason, traceback FROM runs WHERE experiment = ? AND state = 'failed'"
        return {run: RunFailure(why, where) for run, why, where in self._select(query, experiment)}

    def experiments(self) -> list[str]:
        """The experiments that have rows."""
        query = "SELECT DISTINCT experiment FROM runs WHERE state = 'done' ORDER BY experiment"
        return [name for (name,) in self._select(query)]

    def entries(self, runs: Iterable[Run]) -> list[tuple[Row, dict[str, Any]]]:
        """Row and provenance of each of `runs` that has one, in their order."""
        wanted = list(runs)
        names = {run.experiment for run in wanted}
        found = {
            about["run"]["id"]: (row, about) for name in names for row, about in self._of(name)
        }
        return [found[run.id] for run in wanted if run.id in found]

    def rows(self, runs: Iterable[Run]) -> list[Row]:
        """The rows of those of `runs` that have one."""
        return [row for row, _ in self.entries(runs)]

    def provenance(self, run: Run) -> dict[str, Any]:
        """What is stored of how `run` was measured; KeyError if it has no row."""
        for _, about in self.entries([run]):
            return about
        raise KeyError(run.id)

    def table(self, experiment: Experiment) -> list[tuple[Row, dict[str, Any]]]:
        """Every row of `experiment` in its present version, with its provenance, in order of
        parameters and seed."""
        found = [
            (row, about)
            for row, about in self._of(experiment.name)
            if about["run"]["version"] == experiment.version
            and about["run"]["parameters"].keys() == experiment.sweep.keys()
        ]
        return sorted(found, key=lambda entry: order(experiment, entry[0]))

    def _of(self, experiment: str) -> Iterator[tuple[Row, dict[str, Any]]]:
        """Row and provenance of every run of `experiment`."""
        query = (
            "SELECT id, content, row, provenance, checksum FROM runs WHERE experiment = "
            "? AND state = 'done'"
        )
        for run, *texts, stored in self._select(query, experiment):
            if checksum(*texts) != stored:
                raise OSError(
                    f"{self.path}: run {run} is damaged; weft run {experiment} --fresh "
                    f"measures it again"
                )
            yield json.loads(texts[1]), json.loads(texts[2])

    def _select(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        """What `query` gives; nothing if there are no results."""
        if not self.path.exists():
            if not old_results.there_are(self.root):
                return []
            self._make()
        with self._connected() as db:
            return db.execute(query, values).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction, which is kept unless the block raises."""
        if not self.path.exists():
            self._make()
        if not writable(self.path):
            raise OSError(f"{self.path}: may not be written")
        with self._connected(write=True) as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                with suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")

    @contextmanager
    def _connected(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection for a moment, so that no process that this one forks has it."""
        with explained(self.path), closing(connect(self.path, write=write)) as db:
            ((application,), (version,)) = (
                db.execute(f"PRAGMA {what}").fetchone()
                for what in ("application_id", "user_version")
            )
            if application != APPLICATION:
                raise OSError(f"{self.path}: is no file of weft's results")
            if version != VERSION:
                raise OSError(
                    f"{self.path}: is of version {version}; this weft reads version {VERSION}"
                )
            yield db

    def _make(self) -> None:
        """Put the file in place, with the results of the old form, unless another process has just
        done so."""
        unfinished = self.root / f".{NAME}.{myself().replace(':', '-')}.tmp"
        with given_back(self.path, unfinished), explained(self.path):
            self.root.mkdir(parents=True, exist_ok=True)
            remove_unfinished(self.root)
            try:
                fill(
                    unfinished,
                    old_results.read(self.root) if old_results.there_are(self.root) else (),
                )
                put_in_place(unfinished, self.path)
            finally:
                for end in ("", "-wal", "-shm"):
                    unfinished.with_name(unfinished.name + end).unlink(missing_ok=True)


def put_in_place(unfinished: Path, path: Path) -> None:
    """Let `path` be `unfinished`, unless another process was first."""
    try:
        os.link(unfinished, path)
    except FileExistsError:
        return
    except OSError:  # no links in this file system
        if not path.exists():
            unfinished.rename(path)


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """A connection to the file that is there; one that cannot be written may be read."""
    mode = "mode=rw"
    if not write and not writable(path):
        mode = "mode=ro" if path.with_name(path.name + "-wal").exists() else "immutable=1"
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{mode}", timeout=BUSY_S, isolation_level=None, uri=True
    )


def fill(path: Path, old: Iterable[old_results.Old]) -> None:
    """Make a file of results that holds those of `old`; sqlite3.Error unless all of it is in the
    file itself."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(f"BEGIN; {SCHEMA}")
        for run, row, provenance in old:
            enter(db, run, text_of(row), text_of(provenance), provenance["wall_s"])
        db.execute("COMMIT")
        # raises where closing says nothing
        busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)) as db:
        if busy or db.execute("PRAGMA quick_check").fetchone() != ("ok",):
            raise sqlite3.OperationalError("it could not be written whole")


def enter(
    db: sqlite3.Connection, run: Run, row: str, provenance: str, wall_s: float | None
) -> None:
    """Enter what `run` gave."""
    content = text_of(run.content)
    texts = (content, row, provenance)
    db.execute(ENTER, (run.id, run.experiment, "done", *texts, "", "", wall_s, checksum(*texts)))


def done(db: sqlite3.Connection, run: Run) -> bool:
    """Whether `run` has a row."""
    return (
        db.execute("SELECT 1 FROM runs WHERE id = ? AND state = 'done'", (run.id,)).fetchone()
        is not None
    )


def writable(path: Path) -> bool:
    """Whether this process may write to the file and make others beside it."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """What SQLite refuses is an OSError that names the file."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        damaged = not isinstance(error, sqlite3.OperationalError)
        advice = "; move it away, and runs are measured anew" if damaged else ""
        no_index = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_IOERR_SHMSIZE
        raise OSError(
            f"{path}: {'database or disk is full' if no_index else error}{advice}"
        ) from error


def remove_unfinished(root: Path) -> None:
    """Remove what processes left that died while they made the file."""
    for path in root.glob(f".{NAME}.*.tmp*"):
        process = path.name.removeprefix(f".{NAME}.").partition(".tmp")[0].replace("-", ":", 2)
        if not lives(process):
            path.unlink(missing_ok=True)
