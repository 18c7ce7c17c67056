"""Measure the silence of a process in time that it could have used.

A process that waits for a processor, memory or a disk is late.  A process hangs if it does nothing
although it could run, or runs and makes no progress.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from pathlib import Path
from typing import NamedTuple

LATE_STATES = "RD"  # of /proc/PID/stat: waits for a processor or runs, waits for memory or a disk


class ProcessorUse(NamedTuple):
    """The kernel's account of a process.

    waited_ns: time in the run queue, up to the last time that it got a processor.
    """

    state: str
    ran_ns: int
    waited_ns: int


def read(pid: int) -> ProcessorUse:
    """Return what process `pid` has used; nothing, and state "X", if there is none."""
    folder = Path("/proc") / str(pid)
    try:
        state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        ran_ns, waited_ns, _ = map(int, (folder / "schedstat").read_text().split())
    except (FileNotFoundError, ProcessLookupError):
        return ProcessorUse("X", 0, 0)
    return ProcessorUse(state, ran_ns, waited_ns)


def usable_s(before: ProcessorUse, after: ProcessorUse, most_s: float) -> float:
    """Return how many of the `most_s` seconds between two readings the process could have used."""
    if after.state in LATE_STATES:
        return min((after.ran_ns - before.ran_ns) / 1e9, most_s)
    return max(0.0, most_s - (after.waited_ns - before.waited_ns) / 1e9)


class Silences:
    """The silence of each process, in seconds that it could have used.

    read_use: returns what a process has used.
    """

    def __init__(self, read_use: Callable[[int], ProcessorUse] = read) -> None:
        self._read = read_use
        self._silent: dict[int, tuple[ProcessorUse, float]] = {}

    def end(self, pid: int) -> None:
        """End the silence of the process, if there is one."""
        self._silent.pop(pid, None)

    def look(self, pid: int, look_s: float) -> float:
        """Return the silence of the process since the first look; looks are `look_s` apart."""
        use = self._read(pid)
        before, silent_s = self._silent.get(pid, (None, 0.0))
        if before is not None:
            silent_s += usable_s(before, use, look_s)
        self._silent[pid] = use, silent_s
        return silent_s

    def keep(self, pids: Container[int]) -> None:
        """Forget all processes but these."""
        self._silent = {pid: entry for pid, entry in self._silent.items() if pid in pids}

    def explain(self, pid: int) -> str:
        """Return the silence of the process as a line for the log."""
        use, silent_s = self._silent[pid]
        return (
            f"silent for {silent_s:.1f} s that it could have used (state {use.state}; in all it "
            f"has run for "
            f"{use.ran_ns / 1e9:.1f} s and waited for a processor for {use.waited_ns / 1e9:.1f} s)"
        )
