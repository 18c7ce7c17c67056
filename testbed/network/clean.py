"""Remove a run from the kernel, in whatever state it died.

Nothing is removed by pattern.  Processes carry the run's id in their environment or live in its
namespaces; namespaces are in its journal; everything else of a run lives inside them.  Of a run
that ended with the machine only files on the disk are left (hosts_file.py).
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from weft.testbed.linux import cgroup, netns, process
from weft.testbed.network import outside
from weft.testbed.runs import hosts_file
from weft.testbed.runs.run import ENVIRONMENT, RunRecord, dead_runs, forget_lost, runs


def clean(name: str | None = None) -> list[str]:
    """Remove every dead run, or only the one called `name`; return the removed ids.

    What is left of runs that ended with the machine is removed whatever the name.

    Raises:
        ValueError: no run of that name, or it is alive.
    """
    lost = forget_lost()
    dead = [run for run in dead_runs() if name in (None, run.id)]
    if name is not None and not dead and name not in lost:
        up = any(run.id == name for run in runs())
        raise ValueError(
            f"run {name} is up; `weft down --run {name}` takes it down"
            if up
            else f"there is no run {name}"
        )
    for run in dead:
        remove(run)
    return sorted({*lost, *(run.id for run in dead)})


def remove(run: RunRecord) -> None:
    """Remove everything of `run`: its processes but this one, its namespaces, its directory.

    SIGINT and SIGTERM wait for the end.  A call that SIGKILL ended at any point may be repeated.

    Raises:
        TimeoutError: a process or namespace does not end in time.
    """
    with process.deferred_signals():
        _remove(run)


def _remove(run: RunRecord) -> None:
    journal = run.journal_or_empty()
    names = journal.get("namespaces", [])
    kill(processes(run.id, names))
    netns.forget(names)
    hosts_file.unlink(names)
    cgroup.remove(names)
    outside.disconnect(journal)
    if names:
        netns.wait_until_gone()
    with suppress(FileNotFoundError):  # another process cleaned at the same time
        run.forget()


def processes(run: str, namespaces: Collection[str]) -> list[int]:
    """Return the processes of a run: they carry its id or live in one of its namespaces.

    This process is not among them.
    """
    inodes = set()
    for name in namespaces:
        with suppress(FileNotFoundError):
            inodes.add(os.stat(netns.NAMES / name).st_ino)
    pids = set(marked(ENVIRONMENT, run))
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            if os.stat(directory / "ns/net").st_ino in inodes:
                pids.add(int(directory.name))
    return sorted(pids - {os.getpid()})


def marked(variable: str, value: str) -> list[int]:
    """Return the other processes that began with an environment variable of this value."""
    mark = f"{variable}={value}".encode()
    pids = []
    for directory in Path("/proc").glob("[0-9]*"):
        # it ended meanwhile, or has no environment as a kernel thread has none
        with suppress(OSError):
            if mark in (directory / "environ").read_bytes().split(b"\0"):
                pids.append(int(directory.name))
    return [pid for pid in pids if pid != os.getpid()]


def kill(
    pids: Collection[int], timeout_s: float = 10.0, number: signal.Signals = signal.SIGKILL
) -> None:
    """Send these processes a signal, SIGKILL, and wait for their end.

    Raises:
        TimeoutError: a process has not ended in time.
    """
    waiting = {}
    for pid in pids:
        with suppress(ProcessLookupError):
            fd = os.pidfd_open(pid)
            waiting[fd] = pid
            signal.pidfd_send_signal(fd, number)
    poll = select.poll()
    for fd in waiting:
        poll.register(fd, select.POLLIN)
    try:
        while waiting:
            ended = poll.poll(timeout_s * 1000)
            if not ended:
                raise TimeoutError(f"process {next(iter(waiting.values()))} does not end")
            for fd, _ in ended:
                poll.unregister(fd)
                os.close(fd)
                del waiting[fd]
    finally:
        for fd in waiting:
            os.close(fd)
