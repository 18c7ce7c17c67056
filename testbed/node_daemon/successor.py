"""The process that watches a supervisor, and takes its place when it dies.

    python -m weft.testbed.node_daemon.successor SUPERVISOR LOCK BEATS PERIOD COMMAND

It waits for the process of the pidfd SUPERVISOR to end, holding the run's lock (descriptor LOCK, -1
for none).  Then it becomes COMMAND, a supervisor that starts the daemons again, with the reason as
one more argument.  A supervisor ends its successor before it ends itself, and starts another one if
its successor dies, so that one of the two lives unless both are killed at once.

A supervisor writes to the pipe BEATS every PERIOD seconds.  It hangs, and is killed, if it has not
written for HANGS_AFTER periods that it could have used (watchdog.py).
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

from weft.testbed.node_daemon.watchdog import Silences
from weft.testbed.runs import isolated_python

# periods, of a second as a rule: longer than it takes to kill a daemon that does not end
HANGS_AFTER = 8
AGAIN = "again"  # last argument but one of a supervisor that replaces another


class Successor(NamedTuple):
    """The successor's pidfd, and the pipe of beats."""

    fd: int
    beats: int

    def beat(self) -> None:
        """Report that the supervisor does not hang."""
        # pipe full, process dead (its pidfd is readable), or never started
        with suppress(OSError):
            os.write(self.beats, b".")

    def close(self) -> None:
        """Reap the process, which has ended."""
        os.waitid(os.P_PIDFD, self.fd, os.WEXITED)
        os.close(self.fd)
        os.close(self.beats)

    def end(self) -> None:
        """Kill the process and reap it."""
        signal.pidfd_send_signal(self.fd, signal.SIGKILL)
        self.close()


NO_SUCCESSOR = Successor(-1, -1)


def start(lock: int, period_s: float) -> Successor:
    """Start the successor of this process, a supervisor.

    Args:
        lock: descriptor of the run's lock, which the successor holds; -1: none.
        period_s: interval of beats.
    """
    own_argv = sys.orig_argv[:-2] if AGAIN in sys.orig_argv[-2:-1] else sys.orig_argv
    pidfd = os.pidfd_open(os.getpid())
    reader, beats = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    argv = [str(pidfd), str(lock), str(reader), f"{period_s:g}", *own_argv, AGAIN]
    command = isolated_python.command("weft.testbed.node_daemon.successor", argv, packages=False)
    if not (pid := os.fork()):
        for fd in (pidfd, lock, reader):
            if fd >= 0:
                os.set_inheritable(fd, True)
        os.execv(command[0], command)  # closes all other descriptors
    os.close(pidfd)
    os.close(reader)
    return Successor(os.pidfd_open(pid), beats)


def watch(supervisor: int, beats: int, period_s: float) -> str:
    """Wait for the end of the process of the pidfd `supervisor`; kill it if it hangs.

    Returns:
        Why it ended, for the log.
    """
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
                poll.unregister(beats)  # closed: the supervisor is ending, or hangs while it does
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
        os.dup2(nothing.fileno(), 1)  # the reader of the first supervisor's output has left
    if int(lock) >= 0:
        os.set_inheritable(int(lock), True)
    why = watch(int(supervisor), int(beats), float(period))
    os.close(int(supervisor))
    os.close(int(beats))
    os.execv(command[0], [*command, why])


if __name__ == "__main__":
    main(sys.argv[1:])
