"""The process that watches a supervisor, and takes its place when it dies.

    python -m weft.testbed.node_daemon.successor SUPERVISOR LOCK BEATS PERIOD COMMAND

It waits for the process of the descriptor SUPERVISOR to end, holding the run's lock (descriptor
LOCK, -1 for none). Then it becomes COMMAND, with the reason as one more argument: a supervisor that
starts the daemons again.  A supervisor that ends as it should ends its successor first; it starts
another one if that dies.  So one of the two is there, unless both are killed at once.

A supervisor that hangs is ended.  It writes to the pipe BEATS every PERIOD seconds.  It hangs when
it has not for HANGS_AFTER periods that it could have used (usable_time.py).  Looks of this process
are counted, not seconds, because this process may be late itself.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from weft.testbed.node_daemon.usable_time import Silences
from weft.testbed.runs import isolated_python

# periods: as many seconds most often, longer than it takes to end a daemon that does not obey
HANGS_AFTER = 8
AGAIN = "again"  # the last argument but one of a supervisor that takes another's place


class Successor(NamedTuple):
    """fd: a descriptor that tells when its process has ended.  beats: of a pipe, for beat()."""

    fd: int
    beats: int

    def beat(self) -> None:
        """Let it know that the supervisor is not hanging."""
        # it has not read for long, or has died, which its descriptor tells, or is nobody
        with suppress(OSError):
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
    """Start the successor of this process, a supervisor that will beat every `period_s`, which
    holds the descriptor `lock` (-1: none)."""
    own = [*(sys.orig_argv[:-2] if AGAIN in sys.orig_argv[-2:-1] else sys.orig_argv), AGAIN]
    me = os.pidfd_open(os.getpid())
    heard, beats = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    argv = [str(me), str(lock), str(heard), f"{period_s:g}", *own]
    command = isolated_python.command("weft.testbed.node_daemon.successor", argv, packages=False)
    if not (pid := os.fork()):
        for fd in (me, lock, heard):
            if fd >= 0:
                os.set_inheritable(fd, True)
        os.execv(command[0], command)  # which closes all else that is open
    os.close(me)
    os.close(heard)
    return Successor(os.pidfd_open(pid), beats)


def watch(supervisor: int, beats: int, period_s: float) -> str:
    """Return why the process of the descriptor `supervisor` has ended; end it if it hangs."""
    poll = select.poll()
    poll.register(supervisor, select.POLLIN)
    poll.register(beats, select.POLLIN)
    pid, silences, why = _process(supervisor), Silences(), ""
    while True:
        ready = dict(poll.poll(1000 * period_s))
        if supervisor in ready:
            return why or "it has died"
        if beats in ready:
            silences.end(pid)
            if not os.read(beats, 4096):
                poll.unregister(beats)  # its end is closed: it is about to end, or hangs on the way
        elif silences.look(pid, period_s) >= HANGS_AFTER * period_s:
            why = why or f"it was ended, {silences.explain(pid)}"
            with suppress(ProcessLookupError):  # it has ended meanwhile
                signal.pidfd_send_signal(supervisor, signal.SIGKILL)


def _process(fd: int) -> int:
    """Return the id of the process of the descriptor `fd`, or -1 if it has ended."""
    lines = dict(
        line.split(":\t") for line in Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines()
    )
    return int(lines["Pid"])


def main(argv: Sequence[str]) -> None:
    supervisor, lock, beats, period, *command = argv
    with open(os.devnull, "r+b") as nothing:
        os.dup2(nothing.fileno(), 1)  # who waited for the first supervisor waits no more
    if int(lock) >= 0:
        os.set_inheritable(int(lock), True)
    why = watch(int(supervisor), int(beats), float(period))
    os.close(int(supervisor))
    os.close(int(beats))
    os.execv(command[0], [*command, why])


if __name__ == "__main__":
    main(sys.argv[1:])
