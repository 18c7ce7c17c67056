"""A process that serves daemons: what the supervisor knows of it, and what it does between fork and
end."""

from __future__ import annotations

import os
import resource
import signal
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from weft.testbed.linux import netns, privileges
from weft.testbed.node_daemon.loop import Loop

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
REAL_TIME_PRIORITY = 10


@dataclass(frozen=True)
class Child:
    """A process that serves daemons, and a descriptor that tells when it has ended."""

    pid: int
    fd: int
    nodes: tuple[int, ...]


def run(loop: Loop, name: bytes, others: Sequence[tuple[int, int]], parent: int) -> NoReturn:
    """In a process forked for it: run `loop`, without the descriptors of others, and with no rights
    but a daemon's."""
    status = 1
    try:
        for first, after in others:
            os.closerange(first, after)
        if not netns.libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) and os.getppid() == parent:
            netns.libc.prctl(PR_SET_NAME, name)
            privileges.keep_only(*loop.rights())
            loop.run()
            status = 1 if loop.failed else 0
    except SystemExit:
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(status)


def allow_descriptors(count: int) -> None:
    """Let this process have so many files open, or as many as it may: what is asked for is an upper
    bound."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(count, soft), max(count, hard)))
    except ValueError:  # root without CAP_SYS_RESOURCE
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def real_time(wanted: bool) -> None:
    """Have real-time priority from now on, or not; the counters tell whether a daemon has got
    it."""
    policy, priority = (os.SCHED_FIFO, REAL_TIME_PRIORITY) if wanted else (os.SCHED_OTHER, 0)
    with suppress(PermissionError):
        os.sched_setscheduler(0, policy, os.sched_param(priority))


def gaps(kept: Iterable[int]) -> list[tuple[int, int]]:
    """The ranges, first and one after the last, of all descriptors that are not in `kept`."""
    found, first = [], 0
    for fd in sorted(kept):
        if first < fd:
            found.append((first, fd))
        first = fd + 1
    return [*found, (first, resource.getrlimit(resource.RLIMIT_NOFILE)[0])]
