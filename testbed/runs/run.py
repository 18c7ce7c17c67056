"""Runs: the names and journals of networks, on disk before anything is in the kernel.

A run's directory, /run/weft/<id>, holds its journal (run.json: what will be created), its lock, and
the daemons' counters, sockets and logs.  A process that keeps the run alive holds the lock, so that
a run with a free lock is dead, however it died.  Only root can open these files, so that no other
user can hold a lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from weft.testbed.runs import hosts_file, private_files

DIRECTORY = Path("/run/weft")
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,15}")
SLOTS = 1 << 14  # interface indexes of a run are slot * 65536 + ..., of 31 bits
# environment variable: the run that a process belongs to, and ends with
ENVIRONMENT = "WEFT_PROCESS_OF"
DEFAULT = "WEFT_RUN"  # environment variable: the run that commands use


class Journal(dict[str, Any]):
    """The entries of a run's journal; an entry that is read and missing is an error in one line."""

    def __missing__(self, key: str) -> NoReturn:
        name = self.get("id")
        raise ValueError(
            f"run {name} was made by another version of weft, whose journal "
            f"has no {key}: take it down by `weft down --run {name}`, and bring it up again"
        )


@dataclass(frozen=True)
class RunRecord:
    """A run: its id, its slot among all runs, its directory."""

    id: str
    slot: int
    directory: Path

    @property
    def journal(self) -> Journal:
        """The entries that the run wrote before it created anything."""
        return Journal(json.loads((self.directory / "run.json").read_text()))

    def journal_or_empty(self) -> dict[str, Any]:
        """Return the journal; empty if the run died before it wrote one, or created anything."""
        try:
            return self.journal
        except FileNotFoundError:
            return {}

    def alive(self) -> bool:
        """Return True if a process keeps the run: `weft up`, a script, or its supervisor."""
        with suppress(FileNotFoundError):
            lock = private_files.open_file(self.directory / "lock", os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(lock)
        return False

    def namespace(self, node: str) -> str:
        """Return the namespace of the node called `node`, as `ip netns` shows it."""
        return f"weft.{self.id}.{node}"

    def forget(self) -> None:
        """Remove the directory, as the last step of removing a run."""
        shutil.rmtree(self.directory)


# of a plan whose run has no name yet
UNNAMED = RunRecord("RUN", 1, DIRECTORY / "RUN")


@dataclass
class RunLock:
    """A run and the descriptor of its lock; a child that inherits it keeps the run alive, too."""

    run: RunRecord
    lock: int

    def release(self) -> None:
        os.close(self.lock)


@contextmanager
def _registry() -> Iterator[None]:
    """Hold the lock under which names and slots are assigned."""
    private_files.make_folder(DIRECTORY)
    lock = private_files.open_file(DIRECTORY / ".lock", os.O_WRONLY | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def require_name(name: str) -> None:
    """Raise ValueError if `name` is no name of a run."""
    if not NAME.fullmatch(name):
        raise ValueError(f"run name {name!r}: up to 16 of a-z, 0-9 and -, such as demo")


def reserve(name: str | None) -> RunLock:
    """Create a run called `name`, by default four hexadecimal digits, which the caller keeps alive.

    Raises:
        ValueError: `name` is no name of a run, or a run has it already.
    """
    if name is not None:
        require_name(name)
    with _registry():
        hosts_file.unlink_lost(DIRECTORY)
        known = {run.id: run for run in runs()}
        if name in known:
            alive = known[name].alive()
            state = (
                f"is up; take it down by `weft down --run {name}`, or choose another name"
                if alive
                else "has died; `weft clean` removes what it left"
            )
            raise ValueError(f"a run called {name} {state}")
        while name is None or name in known:
            name = os.urandom(2).hex()
        slots = {run.slot for run in known.values()}
        slot = next(slot for slot in range(1, SLOTS) if slot not in slots)
        directory = DIRECTORY / name
        private_files.make_folder(directory)
        lock = private_files.open_file(directory / "lock", os.O_CREAT | os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = RunRecord(name, slot, directory)
        write_journal(run, {"id": name, "slot": slot, "namespaces": []})
        return RunLock(run, lock)


def write_journal(run: RunRecord, journal: dict[str, Any]) -> None:
    """Write `journal` to disk atomically."""
    text = json.dumps(journal, indent=1)
    private_files.replace(run.directory / "run.json", text.encode(), to_disk=True)


def runs() -> list[RunRecord]:
    """Return every run that has a directory, dead or alive, in order of id.

    Raises:
        ValueError: this user may not read the directory of runs.
    """
    if DIRECTORY.exists() and not os.access(DIRECTORY, os.R_OK | os.X_OK):
        raise ValueError(
            f"which runs are up only root may know ({DIRECTORY} is closed to others): use sudo"
        )
    records = []
    for directory in sorted(DIRECTORY.glob("*/")):
        record = RunRecord(directory.name, 0, directory)
        records.append(replace(record, slot=record.journal_or_empty().get("slot", 0)))
    return records


def dead_runs() -> list[RunRecord]:
    """Return the dead runs; a run that is just being reserved is not one of them."""
    if not DIRECTORY.exists():
        return []
    with _registry():
        return [run for run in runs() if not run.alive()]


def left_behind(records: Iterable[RunRecord]) -> str:
    """Return the words about dead runs among `records`; "" if there is none."""
    names = ", ".join(run.id for run in records if not run.alive())
    return f"dead: {names}; `weft clean` removes what is left" if names else ""


def forget_lost() -> list[str]:
    """Remove what is left of the runs that were up when the machine went down; return their ids."""
    with _registry():
        return hosts_file.unlink_lost(DIRECTORY)


def find(name: str | None) -> RunRecord:
    """Return the live run called `name`; by default $WEFT_RUN, or the only live run.

    The parts of a run over several machines do not count where the run itself is known.

    Raises:
        ValueError: no such run, or several are up; the line lists the live runs.
    """
    every = runs()
    live = [run for run in every if run.alive()]
    name = name or os.environ.get(DEFAULT) or None
    whole = [run for run in live if not run.journal_or_empty().get("part")] or live
    if name is None and len(whole) == 1:
        return whole[0]
    for run in live:
        if run.id == name:
            return run
    names = ", ".join(run.id for run in live) or "none"
    if name in {run.id for run in every}:
        raise ValueError(f"run {name} is dead; `weft clean` removes what it left")
    if name is None and live:
        raise ValueError(f"several runs are up, say which with --run: {names}")
    if name:
        raise ValueError(f"no run {name!r} is up (up: {names})")
    left = f" ({words})" if (words := left_behind(every)) else ""
    raise ValueError(f"no run is up; start one with `weft up`{left}")
