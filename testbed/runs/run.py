"""Runs: the name of everything that one network is made of, on disk before it is in the kernel.

A run's directory, /run/weft/<id>, holds its journal (run.json: what will be created), its lock
(held by whoever keeps the run alive, so that a run whose lock is free is dead, whatever killed it),
the daemons' counters, sockets and logs. Only root can open any of it, so that nobody else can hold
a lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.testbed.runs import private_files

DIRECTORY = Path("/run/weft")
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,15}")
SLOTS = 1 << 14  # a run's interface indexes are slot * 65536 + ..., and an index has 31 bits
# every process of a run carries its id under this name, and ends with it
ENVIRONMENT = "WEFT_PROCESS_OF"
DEFAULT = "WEFT_RUN"  # where a person says which run is meant


@dataclass(frozen=True)
class RunRecord:
    """A run: its id, its slot among the live ones, its directory."""

    id: str
    slot: int
    directory: Path

    @property
    def journal(self) -> dict[str, Any]:
        """What the run said it would create."""
        read: dict[str, Any] = json.loads((self.directory / "run.json").read_text())
        return read

    def journal_or_empty(self) -> dict[str, Any]:
        """The journal; empty if the run died before it was written, and hence before it made
        anything."""
        try:
            return self.journal
        except FileNotFoundError:
            return {}

    def alive(self) -> bool:
        """Whether somebody keeps the run: a foreground `weft up`, a script, or its supervisor."""
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
        """The namespace of the node with this name, as `ip netns` shows it."""
        return f"weft.{self.id}.{node}"

    def forget(self) -> None:
        """Remove the directory: the last thing to do to a run."""
        shutil.rmtree(self.directory)


# in whose name a plan is made that is not carried out
UNNAMED = RunRecord("RUN", 1, DIRECTORY / "RUN")


@dataclass
class RunLock:
    """A run and the lock that keeps it alive; give the descriptor to a child to let it keep the run
    too."""

    run: RunRecord
    lock: int

    def release(self) -> None:
        os.close(self.lock)


@contextmanager
def _registry() -> Iterator[None]:
    """Only one process at a time gives out names and slots."""
    private_files.make_folder(DIRECTORY)
    lock = private_files.open_file(DIRECTORY / ".lock", os.O_WRONLY | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def require_name(name: str) -> None:
    """ValueError unless a run can be called `name`."""
    if not NAME.fullmatch(name):
        raise ValueError(f"run name {name!r}: up to 16 of a-z, 0-9 and -, such as demo")


def reserve(name: str | None) -> RunLock:
    """A new run called `name`, or by four hexadecimal digits, kept alive by the caller.

    Raises ValueError for a name that is not one, or that a run has already.
    """
    if name is not None:
        require_name(name)
    with _registry():
        taken = {run.id: run for run in runs()}
        if name in taken:
            state = (
                "is up" if taken[name].alive() else "has died; `weft clean` removes what it left"
            )
            raise ValueError(f"a run called {name} {state}")
        while name is None or name in taken:
            name = os.urandom(2).hex()
        slots = {run.slot for run in taken.values()}
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
    """Every run that has a directory, dead or alive, in order of id; ValueError if only another
    user may know."""
    if DIRECTORY.exists() and not os.access(DIRECTORY, os.R_OK | os.X_OK):
        raise ValueError(
            f"which runs are up only root may know ({DIRECTORY} is closed to others): use sudo"
        )
    found = []
    for directory in sorted(DIRECTORY.glob("*/")):
        nameless = RunRecord(directory.name, 0, directory)
        found.append(
            RunRecord(directory.name, nameless.journal_or_empty().get("slot", 0), directory)
        )
    return found


def dead_runs() -> list[RunRecord]:
    """The runs that nobody keeps.  One that is just being reserved is not taken for dead."""
    if not DIRECTORY.exists():
        return []
    with _registry():
        return [run for run in runs() if not run.alive()]


def find(name: str | None) -> RunRecord:
    """The live run called `name`, or that $WEFT_RUN names, or the only live one; ValueError says
    what there is."""
    live = [run for run in runs() if run.alive()]
    name = name or os.environ.get(DEFAULT) or None
    if name is None and len(live) == 1:
        return live[0]
    for run in live:
        if run.id == name:
            return run
    there = ", ".join(run.id for run in live) or "none"
    if name is None and live:
        raise ValueError(f"several runs are up, say which with --run: {there}")
    raise ValueError(
        f"no run {name} is up (up: {there})" if name else "no run is up; start one with `weft up`"
    )
