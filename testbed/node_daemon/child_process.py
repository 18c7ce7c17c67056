"""A process that serves daemons, from its fork to its end."""

from __future__ import annotations

import os
import resource
import signal
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from weft.testbed.linux import netns, process
from weft.testbed.node_daemon.loop import Loop

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
REAL_TIME_PRIORITY = 10


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
