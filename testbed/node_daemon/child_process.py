"""A process that serves daemons, from its fork to its end, and what is run before the forks."""

from __future__ import annotations

import os
import resource
import signal
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from weft.testbed.linux import netns, process
from weft.testbed.node_daemon.counters import WORDS
from weft.testbed.node_daemon.daemon import Daemon
from weft.testbed.node_daemon.daemon_files import Daemons
from weft.testbed.node_daemon.linux_capabilities import NodeMaps
from weft.testbed.node_daemon.loop import Loop
from weft.testbed.node_daemon.sealed_channel import rehearsed
from weft.testbed.runs import private_files

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
REAL_TIME_PRIORITY = 10
REHEARSALS, TURNS = 8, 10


@dataclass(frozen=True)
class Child:
    """A process that serves daemons, its pidfd and its nodes."""

    pid: int
    fd: int
    nodes: tuple[int, ...]


def run(loop: Loop, name: bytes, others: Sequence[tuple[int, int]], parent: int) -> NoReturn:
    """Run `loop` in a forked process with the capabilities of daemons only, and exit.

    Args:
        loop: to run.
        name: of the process.
        others: ranges of descriptors to close, those of other daemons.
        parent: the process that forked this one, with which this one ends.
    """
    status = 1
    try:
        for first, after in others:
            os.closerange(first, after)
        if not netns.libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) and os.getppid() == parent:
            netns.libc.prctl(PR_SET_NAME, name)
            process.keep_only(*loop.rights())
            loop.run()
            status = 1 if loop.failed else 0
    except SystemExit:
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(status)


def real_time(enabled: bool) -> None:
    """Take real-time priority, or give it up; without the right to, nothing happens."""
    policy, priority = (os.SCHED_FIFO, REAL_TIME_PRIORITY) if enabled else (os.SCHED_OTHER, 0)
    with suppress(PermissionError):
        os.sched_setscheduler(0, policy, os.sched_param(priority))


def gaps(descriptors: Iterable[int]) -> list[tuple[int, int]]:
    """Return the half-open ranges of all descriptors that are not in `descriptors`."""
    ranges = []
    first = 0
    for fd in sorted(descriptors):
        if first < fd:
            ranges.append((first, fd))
        first = fd + 1
    return [*ranges, (first, resource.getrlimit(resource.RLIMIT_NOFILE)[0])]


def rehearse(directory: Path, daemons: Daemons) -> None:
    """Let a few neighbouring daemons route at a quick pace, and remove their traces.

    Python specializes code that runs often.  Specialized code writes less, to reference counts and
    caches, so that forked children share more pages; each saves a quarter of its own memory.

    Nothing is rehearsed where daemons do more than set routes, or where routes of earlier daemons
    carry traffic.
    """
    if next(iter(daemons.configs.values())).needs:
        return
    groups = (
        [config.node, *(config.ports[0][1][:2] if config.ports else ())]
        for config in daemons.configs.values()
    )
    # neighbours may be on another machine
    nodes = next((group for group in groups if set(group) <= set(daemons.configs)), [])
    if not nodes:
        return
    private_files.make_folder(directory)
    for _ in range(REHEARSALS):
        if not _run_once(_make_daemons(directory, daemons, nodes)):
            break
    for folder in (directory / "log", directory):
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


def _make_daemons(directory: Path, daemons: Daemons, nodes: list[int]) -> list[Daemon]:
    interfaces = [daemons.interfaces[node] for node in nodes]
    return [
        Daemon(
            directory,
            daemons.interfaces[node],
            replace(daemons.configs[node], interval_ms=1),
            memoryview(bytearray(WORDS * 8)).cast("Q"),
            credentials,
            NodeMaps(),
        )
        for node, credentials in zip(nodes, rehearsed(interfaces), strict=True)
    ]


def _run_once(rehearsing: list[Daemon]) -> bool:
    """Run the daemons for a few turns; return False if they inherited routes, which stay."""
    loop = Loop(rehearsing)
    if any(daemon.inherited for daemon in rehearsing):
        loop.end("nothing to rehearse")
        return False
    loop.start()
    for _ in range(TURNS):
        loop.turn()
    for daemon in rehearsing:
        daemon.forget_routes()
    loop.end("rehearsed")
    return True
