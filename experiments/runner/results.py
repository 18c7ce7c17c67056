"""Results on disk: one SQLite file for a folder of results, results/results.sqlite.

The file holds each run's row and provenance, or the reason why the run failed.  One transaction
stores a run, so a killed sweep leaves no half of a run.  Several processes may work on one file: a
process claims a run before it measures it, and a claim ends with the process,
whose identity is never reused, unlike its id.

A new file is built under another name and then put in place.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from weft.experiments.runner.definition import Entry, Experiment, Result, Row, Run
from weft.experiments.runner.rows import checksum, order, provenance_of, row_of, text_of
from weft.testbed.runs.private_files import owned_by_caller

BOOT = Path("/proc/sys/kernel/random/boot_id")
NAME = "results.sqlite"
VERSION = 1  # of the schema
BUSY_S = 60.0  # while another process writes
ENTER = """
INSERT OR REPLACE INTO runs
    (id, experiment, state, content, row, provenance, reason, traceback, wall_s, checksum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class RunFailure(NamedTuple):
    """Reason of a failed run in one line, and its traceback."""

    reason: str
    traceback: str


def reason(error: BaseException) -> str:
    """Return type and message of `error` in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")


def myself() -> str:
    """Return the identity of this process: id, start time in ticks since boot, and boot id."""
    return f"{os.getpid()}:{began(os.getpid())}:{boot()}"


def lives(process: str) -> bool:
    """Return True if the process with this identity runs; a zombie does not."""
    pid, ticks, of_boot = process.split(":", 2)
    return of_boot == boot() and bool(ticks) and ticks == began(int(pid))


def began(pid: int) -> str:
    """Return the start time of a process in ticks since boot; empty if it does not run."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] in "ZX" else fields[19]  # fields 3 and 22 of proc(5)


def boot() -> str:
    """Return the boot id of the machine."""
    return BOOT.read_text(encoding="utf-8").strip()


APPLICATION = int.from_bytes(b"weft")  # what `file` reads in the header
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


class RunClaim(Enum):
    """Outcome of a claim: this process measures the run, another does, or its row is stored."""

    OURS = "ours"
    TAKEN = "taken"
    STORED = "stored"


class Store:
    """The results in the directory `root`; the first result creates it.

    Raises:
        OSError: the file is damaged, not writable, full, or of another version; the message is one
            line that names the file.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / NAME

    def put(self, run: Run, result: Result, about: Mapping[str, Any], wall_s: float) -> None:
        """Store `result` as the row of `run`, and its provenance.

        Args:
            run: that was measured.
            result: its figures.
            wall_s: its wall time.
            about: commit, machine and versions of the measurement.

        Raises:
            ValueError, TypeError: a row cannot hold the result.
        """
        row = text_of(row_of(run, result))
        provenance = text_of(provenance_of(run, result, about, wall_s))
        with self._writing() as db:
            enter(db, run, row, provenance, wall_s)
            db.execute("DELETE FROM claims WHERE id = ?", (run.id,))

    def fail(self, run: Run, failure: RunFailure, wall_s: float) -> None:
        """Store that `run` failed, unless an earlier measurement has stored its row."""
        with self._writing() as db:
            if not done(db, run):
                enter(db, run, "", "", wall_s, failure)
            db.execute("DELETE FROM claims WHERE id = ?", (run.id,))

    def claim(self, run: Run, *, again: bool = False) -> RunClaim:
        """Reserve `run` for this process until it is stored or released.

        Args:
            run: to measure.
            again: measure the run even if it has a row.
        """
        with self._writing() as db:
            if not again and done(db, run):
                return RunClaim.STORED
            owner = db.execute("SELECT process FROM claims WHERE id = ?", (run.id,)).fetchone()
            if owner and owner[0] != myself() and lives(owner[0]):
                return RunClaim.TAKEN
            db.execute("INSERT OR REPLACE INTO claims VALUES (?, ?)", (run.id, myself()))
            return RunClaim.OURS

    def release_claims(self) -> None:
        """End every claim of this process."""
        if self.path.exists():
            with self._writing() as db:
                db.execute("DELETE FROM claims WHERE process = ?", (myself(),))

    def size(self) -> int:
        """Return the bytes on disk."""
        return self.path.stat().st_size

    def __contains__(self, run: Run) -> bool:
        return self.states(run.experiment).get(run.id) == "done"

    def states(self, experiment: str) -> dict[str, str]:
        """Return "done" or "failed" by run id, for every stored run of `experiment`."""
        return dict(self._select("SELECT id, state FROM runs WHERE experiment = ?", experiment))

    def failures(self, experiment: str) -> dict[str, RunFailure]:
        """Return the failures of `experiment` by run id."""
        query = "SELECT id, reason, traceback FROM runs WHERE experiment = ? AND state = 'failed'"
        return {run: RunFailure(*failure) for run, *failure in self._select(query, experiment)}

    def experiments(self) -> list[str]:
        """Return the names of the experiments that have rows."""
        query = "SELECT DISTINCT experiment FROM runs WHERE state = 'done' ORDER BY experiment"
        return [name for (name,) in self._select(query)]

    def entries(self, runs: Iterable[Run]) -> list[Entry]:
        """Return (row, provenance) of every stored run in `runs`, in the order of `runs`."""
        runs = list(runs)
        entries: dict[str, Entry] = {}
        for experiment in {run.experiment for run in runs}:
            for row, provenance in self._entries_of(experiment):
                entries[provenance["run"]["id"]] = row, provenance
        return [entries[run.id] for run in runs if run.id in entries]

    def rows(self, runs: Iterable[Run]) -> list[Row]:
        """Return the rows of the stored runs in `runs`, in the order of `runs`."""
        return [row for row, _ in self.entries(runs)]

    def provenance(self, run: Run) -> dict[str, Any]:
        """Return the provenance of `run`; KeyError if it has no row."""
        for _, provenance in self.entries([run]):
            return provenance
        raise KeyError(run.id)

    def table(self, experiment: Experiment) -> list[Entry]:
        """Return (row, provenance) of every run of the current version of `experiment`.

        They are sorted by engine, parameters and seed.
        """
        entries = []
        for row, provenance in self._entries_of(experiment.name):
            run = provenance["run"]
            parameters = run["parameters"]
            if parameters.keys() != experiment.sweep.keys():
                continue
            if run["version"] == experiment.version_of(row["engine"], parameters):
                entries.append((row, provenance))
        return sorted(entries, key=lambda entry: order(experiment, entry[0]))

    def _entries_of(self, experiment: str) -> Iterator[Entry]:
        query = """
            SELECT id, content, row, provenance, checksum FROM runs
            WHERE experiment = ? AND state = 'done'
        """
        for run, *texts, stored in self._select(query, experiment):
            if checksum(*texts) != stored:
                advice = f"weft run {experiment} --fresh measures it again"
                raise OSError(f"{self.path}: run {run} is damaged; {advice}")
            yield json.loads(texts[1]), json.loads(texts[2])

    def _select(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        """Return the rows of `query`; none if there is no file."""
        if not self.path.exists():
            return []
        with self._connected() as db:
            return db.execute(query, values).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction: commit it, or roll it back if the block raises."""
        if not self.path.exists():
            self._make()
        if not writable(self.path):
            raise OSError(f"{self.path}: not writable")
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
        """Open a connection for the block only: a forked process must not inherit it."""
        with explained(self.path), closing(connect(self.path, write=write)) as db:
            (application,) = db.execute("PRAGMA application_id").fetchone()
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if application != APPLICATION:
                raise OSError(f"{self.path}: not a file of weft's results")
            if version != VERSION:
                expected = f"this weft reads version {VERSION}"
                raise OSError(f"{self.path}: the file has version {version}; {expected}")
            yield db

    def _make(self) -> None:
        """Put an empty file in place, unless another process is faster."""
        unfinished = self.root / f".{NAME}.{myself().replace(':', '-')}.tmp"
        with owned_by_caller(self.path, unfinished), explained(self.path):
            self.root.mkdir(parents=True, exist_ok=True)
            remove_unfinished(self.root)
            try:
                create(unfinished)
                put_in_place(unfinished, self.path)
            finally:
                for end in ("", "-wal", "-shm"):
                    unfinished.with_name(unfinished.name + end).unlink(missing_ok=True)


def put_in_place(unfinished: Path, path: Path) -> None:
    """Link `unfinished` to `path`, unless `path` exists."""
    try:
        os.link(unfinished, path)
    except FileExistsError:
        return
    except OSError:  # a file system without hard links
        if not path.exists():
            unfinished.rename(path)


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """Connect to an existing file, which may be read-only."""
    mode = "mode=rw"
    if not write and not writable(path):
        mode = "mode=ro" if path.with_name(path.name + "-wal").exists() else "immutable=1"
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{mode}", timeout=BUSY_S, isolation_level=None, uri=True
    )


def create(path: Path) -> None:
    """Create an empty file of results; sqlite3.Error unless all of it reaches the file itself."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(f"BEGIN; {SCHEMA}; COMMIT")
        # close() hides a failed checkpoint
        busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)) as db:
        if busy or db.execute("PRAGMA quick_check").fetchone() != ("ok",):
            raise sqlite3.OperationalError("the file could not be written completely")


def enter(
    db: sqlite3.Connection,
    run: Run,
    row: str,
    provenance: str,
    wall_s: float,
    failure: RunFailure | None = None,
) -> None:
    """Insert the row of `run`, or its failure, in place of an earlier entry."""
    texts = (text_of(run.content), row, provenance)
    outcome = ("failed", *texts, *failure) if failure else ("done", *texts, "", "")
    db.execute(ENTER, (run.id, run.experiment, *outcome, wall_s, checksum(*texts)))


def done(db: sqlite3.Connection, run: Run) -> bool:
    """Return True if `run` has a row."""
    query = "SELECT 1 FROM runs WHERE id = ? AND state = 'done'"
    return db.execute(query, (run.id,)).fetchone() is not None


def writable(path: Path) -> bool:
    """Return True if this process may write to the file and create files beside it."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an error of SQLite into an OSError that names the file."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        damaged = not isinstance(error, sqlite3.OperationalError)
        advice = "; move the file away to measure its runs again" if damaged else ""
        disk_full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_IOERR_SHMSIZE
        cause = "database or disk is full" if disk_full else error
        raise OSError(f"{path}: {cause}{advice}") from error


def remove_unfinished(root: Path) -> None:
    """Remove unfinished files of dead processes."""
    for path in root.glob(f".{NAME}.*.tmp*"):
        process = path.name.removeprefix(f".{NAME}.").partition(".tmp")[0].replace("-", ":", 2)
        if not lives(process):
            path.unlink(missing_ok=True)
