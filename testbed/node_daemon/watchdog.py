"""Decide when a dead daemon is restarted, and which process hangs, the supervisor among them.

A daemon is restarted after FIRST_S, and after twice as long for each death within FORGIVEN_S of the
last, up to LONGEST_S.  So a daemon that cannot live costs little, and one that died once is back
before its neighbours have converged without it.

A process hangs if its daemons have not ticked in HANGS_AFTER intervals that it could have used: it
does nothing although it could run, or runs and makes no progress.  A process that waits for a
processor, memory or a disk is late.

The successor is a process that watches a supervisor, and takes its place when it dies:

    python -m weft.testbed.node_daemon.watchdog SUPERVISOR LOCK BEATS PERIOD COMMAND

It waits for the process of the pidfd SUPERVISOR to end, holding the run's lock (descriptor LOCK, -1
for none).  Then it becomes COMMAND, a supervisor that starts the daemons again, with the reason as
one more argument.  A supervisor ends its successor before it ends itself, and starts another one if
its successor dies, so that one of the two lives unless both are killed at once.

A supervisor writes to the pipe BEATS every PERIOD seconds.  It hangs, and is killed, if it has not
written for SUPERVISOR_HANGS_AFTER periods that it could have used.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import NamedTuple

from weft.testbed.runs import isolated_python

LATE_STATES = "RD"  # of /proc/PID/stat: waits for a processor or runs, waits for memory or a disk
FIRST_S, LONGEST_S, FORGIVEN_S = 0.1, 30.0, 60.0
LOOK_S, HANGS_AFTER = 1.0, 5


class ProcessorUse(NamedTuple):
    """The kernel's account of a process.

    waited_ns: time in the run queue, up to the last time that it got a processor.
    """

    state: str
    ran_ns: int
    waited_ns: int


def processor_use(pid: int) -> ProcessorUse:
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

    def __init__(self, read_use: Callable[[int], ProcessorUse] = processor_use) -> None:
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


class Restarts:
    """The daemons to restart, by node, and when; all times are seconds of one clock."""

    def __init__(self) -> None:
        self._due: dict[int, float] = {}
        self._deaths: dict[int, tuple[int, float]] = {}  # deaths in a row, time of the last

    def died(self, node: int, now: float) -> float:
        """Schedule a restart after a death or a failed start; return the delay in seconds."""
        count, last = self._deaths.get(node, (0, -inf))
        count = count + 1 if now - last <= FORGIVEN_S else 1
        self._deaths[node] = count, now
        delay = min(FIRST_S * (1 << min(count - 1, 30)), LONGEST_S)
        self._due[node] = now + delay
        return delay

    def forget(self, node: int) -> None:
        """Cancel the restart of the daemon of `node`."""
        self._due.pop(node, None)

    @property
    def deadline(self) -> float:
        """Time of the next restart; inf if none is due."""
        return min(self._due.values(), default=inf)

    def take(self, now: float) -> list[int]:
        """Remove and return the nodes whose daemons are due."""
        due = sorted(node for node, due_s in self._due.items() if due_s <= now)
        for node in due:
            del self._due[node]
        return due


class Hangs:
    """Find the processes that hang, by how often each has ticked."""

    def __init__(self, silences: Silences | None = None) -> None:
        self._silences = silences or Silences()
        self._ticks: dict[int, int] = {}

    def look(self, ticks: Mapping[int, int], look_s: float) -> dict[int, str]:
        """Return the processes that hang, and why.

        ticks: how often each process that runs has ticked; one that never has ticked has no timer.
        look_s: the time between two looks.
        """
        hanging = {}
        for pid, count in ticks.items():
            if not count or count != self._ticks.get(pid):
                self._silences.end(pid)
            elif self._silences.look(pid, look_s) >= HANGS_AFTER * look_s:
                hanging[pid] = self._silences.explain(pid)
        self._ticks = dict(ticks)
        self._silences.keep(ticks.keys())
        return hanging


# periods, of a second as a rule: longer than it takes to kill a daemon that does not end
SUPERVISOR_HANGS_AFTER = 8
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


def start_successor(lock: int, period_s: float) -> Successor:
    """Start the successor of this process, a supervisor.

    Args:
        lock: descriptor of the run's lock, which the successor holds; -1: none.
        period_s: interval of beats.
    """
    own_argv = sys.orig_argv[:-2] if AGAIN in sys.orig_argv[-2:-1] else sys.orig_argv
    pidfd = os.pidfd_open(os.getpid())
    reader, beats = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    argv = [str(pidfd), str(lock), str(reader), f"{period_s:g}", *own_argv, AGAIN]
    command = isolated_python.command(__name__, argv, packages=False)
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
    pid, silences, why = _process_of(supervisor), Silences(), ""
    while True:
        ready = dict(poll.poll(1000 * period_s))
        if supervisor in ready:
            return why or "it has died"
        if beats in ready:
            silences.end(pid)
            if not os.read(beats, 4096):
                poll.unregister(beats)  # closed: the supervisor is ending, or hangs while it does
        elif silences.look(pid, period_s) >= SUPERVISOR_HANGS_AFTER * period_s:
            why = why or f"it was ended, {silences.explain(pid)}"
            with suppress(ProcessLookupError):  # it has ended meanwhile
                signal.pidfd_send_signal(supervisor, signal.SIGKILL)


def _process_of(fd: int) -> int:
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
