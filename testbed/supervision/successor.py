"""The process that watches a supervisor, and takes its place when it dies.

    python -m weft.testbed.supervision.successor SUPERVISOR LOCK BEATS PERIOD COMMAND

It waits for the process of the descriptor SUPERVISOR to end, holding the run's lock (descriptor LOCK, -1 for none), and
then becomes COMMAND: a supervisor that finds daemons to be started again.  A supervisor that ends as it should ends its
successor first; it starts another one if that dies.  So one of the two is there, unless both are killed at once.

A supervisor that hangs is ended, and dead thereby: it writes to the pipe BEATS every PERIOD seconds, and has not where
LOOKS looks in a row, as far apart, find nothing.  Looks are counted, not seconds, since this process may itself have
been kept from running.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from weft.testbed.processes import isolated_python

LOOKS = 8  # as many seconds most often, longer than it takes to end a daemon that does not obey
AGAIN = "again"  # the last argument of a supervisor that takes another's place


class Successor(NamedTuple):
    """fd: a descriptor that tells when its process has ended.  beats: of a pipe, for beat()."""

    fd: int
    beats: int

    def beat(self) -> None:
        """Let it know that the supervisor is not hanging."""
        with suppress(OSError):  # it has not read for long, or has died, which its descriptor tells, or is nobody
            os.write(self.beats, b".")

    def close(self) -> None:
        """Forget one that has ended."""
        os.waitid(os.P_PIDFD, self.fd, os.WEXITED)
        os.close(self.fd)
        os.close(self.beats)

    def end(self) -> None:
        """Have it end."""
        signal.pidfd_send_signal(self.fd, signal.SIGKILL)
        self.close()


NOBODY = Successor(-1, -1)


def start(lock: int, period_s: float) -> Successor:
    """Start the successor of this process, a supervisor that will beat every `period_s`, which holds the descriptor
    `lock` (-1: none)."""
    own = sys.orig_argv if sys.orig_argv[-1] == AGAIN else [*sys.orig_argv, AGAIN]
    me = os.pidfd_open(os.getpid())
    heard, beats = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    argv = [str(me), str(lock), str(heard), f"{period_s:g}", *own]
    command = isolated_python.command("weft.testbed.supervision.successor", argv, packages=False)
    if not (pid := os.fork()):
        for fd in (me, lock, heard):
            if fd >= 0:
                os.set_inheritable(fd, True)
        os.execv(command[0], command)  # which closes all else that is open
    os.close(me)
    os.close(heard)
    return Successor(os.pidfd_open(pid), beats)


def watch(supervisor: int, beats: int, period_s: float) -> None:
    """Return when the process of the descriptor `supervisor` has ended, which is ended here if it does not beat."""
    poll = select.poll()
    poll.register(supervisor, select.POLLIN)
    poll.register(beats, select.POLLIN)
    missed = 0
    while True:
        ready = dict(poll.poll(1000 * period_s))
        if supervisor in ready:
            return
        missed = 0 if beats in ready else missed + 1
        if beats in ready and not os.read(beats, 4096):
            poll.unregister(beats)  # its end is closed: it is about to end, or hangs on the way
        if missed == LOOKS:
            signal.pidfd_send_signal(supervisor, signal.SIGKILL)


def main(argv: Sequence[str]) -> None:
    supervisor, lock, beats, period, *command = argv
    with open(os.devnull, "r+b") as nothing:
        os.dup2(nothing.fileno(), 1)  # who waited for the first supervisor waits no more
    if int(lock) >= 0:
        os.set_inheritable(int(lock), True)
    watch(int(supervisor), int(beats), float(period))
    os.close(int(supervisor))
    os.close(int(beats))
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
