"""The parent of a run's daemons: python -m weft.testbed.node_daemon.supervisor DIRECTORY PROCESSES
OWNER LOCK RESTART [again WHY], started by control.launch().

A fresh interpreter that has imported no more than daemons need forks PROCESSES that share the
nodes, and starts and ends daemons on request.  RESTART is 1 or 0: whether it starts daemons again
that died though
nobody asked them to, ends processes that hang, and has a successor (watchdog.py, successor.py).
How daemons ended is in log/supervisor.log, how often in the counters.

Nobody outlives the run unnoticed: the daemons die with the supervisor (PDEATHSIG), the supervisor
ends with the process OWNER (0: with nobody), and all of them carry the run's id in their
environment, by which cleaning up finds them.  LOCK is the descriptor of the run's lock, -1 if
another process keeps the run.

Requests are lines of JSON on the stream socket daemons.sock: ["start", NODE], ["stop", NODE],
["kill", NODE], ["restart", NODE], ["list"].  So are the answers, {"error": text} when it cannot be
done.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

from weft.daemons.core.node_config import NodeConfig
from weft.testbed.data_plane.groups import Groups
from weft.testbed.linux import clock
from weft.testbed.node_daemon import control_socket, daemon_set, request_line, successor
from weft.testbed.node_daemon.child_process import Child, allow_descriptors, gaps, real_time, run
from weft.testbed.node_daemon.counters import COLUMNS, FILE, DaemonCounters
from weft.testbed.node_daemon.credentials import RunCredentials
from weft.testbed.node_daemon.daemon import Daemon
from weft.testbed.node_daemon.loop import Loop
from weft.testbed.node_daemon.make_daemon import Programs
from weft.testbed.node_daemon.rehearsal import rehearse
from weft.testbed.node_daemon.successor import NOBODY
from weft.testbed.node_daemon.watchdog import LOOK_S, Hangs, Restarts

PID, CONVERGED, TICKS, WANTED, DEATHS, RESTARTS = (
    COLUMNS[name] for name in ("pid", "converged", "ticks", "wanted", "deaths", "restarts")
)
NAME = "supervisor"
SOCKET = "daemons.sock"
READY = b"ready"
DESCRIPTORS_PER_NODE = 128
TOGETHER = 12
WORTH_REHEARSING = 8  # processes
START_S, STOP_S = 30.0, 5.0


def main(argv: Sequence[str]) -> None:
    """Serve until SIGTERM, or until the owner ends."""
    directory, processes, owner, lock, restart, *again = argv
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    supervisor = Supervisor(
        Path(directory), int(processes), int(owner), int(lock) if restart == "1" else None
    )
    try:
        if again:
            supervisor.succeed(again[-1])
        else:
            supervisor.start_all()
        print(READY.decode(), flush=True)
        supervisor.serve()
    except (ValueError, OSError) as error:
        sys.exit(f"{error}")
    finally:
        supervisor.end_all()


class Supervisor:
    """The parent of the daemons of the run in `directory`."""

    def __init__(self, directory: Path, processes: int, owner: int, lock: int | None) -> None:
        """lock: the descriptor that a successor is to hold (-1: none); None if nobody that dies is
        to be replaced."""
        self._place = control_socket.Lock(directory, NAME)
        self._directory = directory
        self._daemons = daemon_set.read(directory)
        self._counters = DaemonCounters(directory / FILE)
        self._log = control_socket.Log(directory, NAME)
        self._credentials = RunCredentials(directory)
        self._processes = processes
        self._shared = processes < len(self._daemons.interfaces)
        self._children: dict[int, Child] = {}  # by descriptor
        self._ended: dict[int, str] = {}  # node -> how its last daemon did
        self._restarts, self._hangs, self._look_at = Restarts(), Hangs(), inf
        self._deaths: dict[int, int] = {}  # by node, of those that have been dealt with
        self._server_of: dict[int, int] = {}  # the process that serves each node
        self._ending = False
        self._lock, self._successor = lock, NOBODY
        (directory / SOCKET).unlink(missing_ok=True)  # of a supervisor that has died
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        control_socket.bind(self._server, directory / SOCKET)
        self._server.listen()
        self._owner = os.pidfd_open(owner) if owner else -1
        theirs = self._daemons
        self._programs = Programs(theirs.program, theirs.first_switch, theirs.transit)
        self._poll = select.epoll()
        for fd in (self._server.fileno(), *([self._owner] if owner else [])):
            self._poll.register(fd, select.EPOLLIN)

    def start_all(self) -> None:
        """Start every daemon of the run; ValueError or OSError says what keeps one from
        starting."""
        nodes = list(self._daemons.interfaces)
        for node in nodes:
            self._counters.cells(node)[WANTED] = 1
        if min(self._processes, len(nodes)) >= WORTH_REHEARSING:
            rehearse(self._directory / "rehearsal", self._daemons)
        self._start_nodes(nodes)

    def succeed(self, why: str) -> None:
        """Start the daemons that have died with the supervisor before this one, and those that it
        was to start.

        why: what became of that supervisor, for the log.
        """
        nodes = []
        for node, at in self._daemons.interfaces.items():
            cells = self._counters.cells(node)
            control_socket.wait_until_ended(self._directory, at.name, STOP_S)
            if cells[WANTED]:
                cells[DEATHS] += bool(cells[PID])
                cells[RESTARTS] += 1
                cells[PID] = cells[CONVERGED] = 0
                nodes.append(node)
        self._log.write(f"process {os.getpid()} takes the supervisor's place: {why}")
        self._start_nodes(nodes)

    def _start_nodes(self, nodes: Sequence[int]) -> None:
        allow_descriptors(100 + DESCRIPTORS_PER_NODE * len(nodes))
        # Everything that is done once is done here, before there are children: a child's own memory
        # is what it writes to, and opening sockets alone writes, object by object, to more than a
        # megabyte of what Python shares.
        count = min(self._processes, len(nodes))
        shares = [
            nodes[i * len(nodes) // count : (i + 1) * len(nodes) // count] for i in range(count)
        ]
        groups = self._programs.groups(nodes)
        loops = [Loop([self._make(node, groups.get(node)) for node in share]) for share in shares]
        self._log.write(f"began: process {os.getpid()}, {len(nodes)} daemons in {count} processes")
        gc.collect()
        gc.freeze()  # nor do children look for garbage in what they share
        self._deaths = {
            node: self._counters.cells(node)[DEATHS] for node in self._daemons.interfaces
        }
        self._fork(loops)
        if self._lock is not None:
            self._begin_to_watch(self._lock)

    def _begin_to_watch(self, lock: int) -> None:
        """Have a successor, which holds `lock`, and look after the daemons from now on."""
        slowest_s = (
            max((config.interval_ms for config in self._daemons.configs.values()), default=0) / 1000
        )
        self._look_s = max(LOOK_S, 2 * slowest_s)
        self._look_at = clock.monotonic() + self._look_s
        self._successor = successor.start(lock, self._look_s)
        self._poll.register(self._successor.fd, select.EPOLLIN)

    def _make(self, node: int, groups: Groups | None) -> Daemon:
        at, cells = self._daemons.interfaces[node], self._counters.cells(node)
        credentials = self._credentials.of(at)
        return self._programs.make_daemon(
            self._directory, at, self._config(node), cells, credentials, groups
        )

    def _config(self, node: int) -> NodeConfig:
        """Daemons that share a process tick a dozen at a time, those of neighbouring nodes
        together: what one of them brings into the cache, of Python and of the network, serves the
        next."""
        config = self._daemons.configs[node]
        if not self._shared:
            return config
        nodes = list(self._daemons.interfaces)
        first = nodes.index(node) // TOGETHER * TOGETHER
        return replace(config, phase_fraction=1 - first / len(nodes))

    def _fork(self, loops: Sequence[Loop]) -> list[Child]:
        """Let each of `loops` run in a process of its own; returns when their daemons have
        started."""
        shared = [0, 1, 2, *self._programs.descriptors()]
        briefs = [
            (loop, loop.name().encode(), gaps([*shared, *loop.descriptors()])) for loop in loops
        ]
        cells = [self._counters.cells(node) for loop in loops for node in loop.nodes()[:1]]
        parent = os.getpid()
        pids: list[int] = []
        real_time(True)  # which children inherit
        # Between two forks the less is done the better: what the parent writes to is no longer
        # shared by the child.
        for i, brief in enumerate(briefs):
            # a process that begins takes milliseconds: all at once, they would keep the first from
            # hellos
            if i > 0:
                self._wait_until_started(cells[i - 1], pids[i - 1])
            pid = os.fork()
            if pid == 0:
                run(*brief, parent)
            pids.append(pid)
        children = [
            Child(pid, os.pidfd_open(pid), loop.nodes())
            for pid, loop in zip(pids, loops, strict=True)
        ]
        for child in children:
            self._children[child.fd] = child
            self._poll.register(child.fd, select.EPOLLIN)
            self._server_of |= dict.fromkeys(child.nodes, child.pid)
        real_time(False)
        for loop in loops:
            loop.disown()
        for child, row in zip(children, cells, strict=True):
            self._wait_until_started(row, child.pid)
        return children

    def _wait_until_started(self, cells: memoryview, pid: int) -> None:
        """Return when the child `pid` serves the node whose row this is."""
        end = clock.monotonic() + START_S
        while cells[PID] != pid:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                raise OSError(
                    f"process {pid} died before it had started; see {self._directory / 'log'}"
                )
            if clock.monotonic() > end:
                raise TimeoutError(f"process {pid} has not started after {START_S:g} s")
            self._successor.beat()
            clock.sleep(0.0002)

    def _names(self, child: Child) -> str:
        return ", ".join(self._daemons.interfaces[node].name for node in child.nodes)

    def serve(self) -> None:
        """Answer requests, reap children and replace those that died until the owner ends."""
        while True:
            next_s = min(self._look_at, self._restarts.deadline)
            for fd, _ in self._poll.poll(
                max(0.0, next_s - clock.monotonic()) if next_s < inf else None
            ):
                if fd in self._children:
                    self._reap(self._children[fd])
                elif fd == self._owner:
                    return
                elif fd == self._successor.fd:
                    self._lose_successor()
                else:
                    self._answer()
            if clock.monotonic() >= self._look_at:
                self._look()
            self._restart_dead()

    def _look(self) -> None:
        """End the processes that hang, and note the daemons that have died."""
        self._look_at = clock.monotonic() + self._look_s
        self._successor.beat()
        if self._successor is NOBODY and self._lock is not None:
            self._begin_to_watch(self._lock)
        ticks = {
            child.pid: sum(self._counters.cells(node)[TICKS] for node in child.nodes)
            for child in self._children.values()
        }
        hanging = self._hangs.look(ticks, self._look_s)
        for child in self._children.values():
            if child.pid in hanging:
                why = hanging[child.pid]
                self._log.write(
                    f"process {child.pid} of {self._names(child)} hangs, and is ended: {why}"
                )
                signal.pidfd_send_signal(child.fd, signal.SIGKILL)
            self._note_deaths(child.nodes)

    def _note_deaths(self, nodes: Iterable[int]) -> None:
        """Have those daemons of `nodes` started again that have died."""
        for node in nodes:
            cells = self._counters.cells(node)
            if cells[DEATHS] != self._deaths[node]:
                self._deaths[node] = cells[DEATHS]
                if cells[WANTED] and self._lock is not None:
                    delay = self._restarts.died(node, clock.monotonic())
                    name = self._daemons.interfaces[node].name
                    self._log.write(
                        f"the daemon of {name} has died; it is started again in {delay:g} s"
                    )

    def _restart_dead(self) -> None:
        """Start those daemons whose time has come, those that shared a process in one again."""
        due = self._restarts.take(clock.monotonic())
        for nodes in [due] if self._shared and due else [[node] for node in due]:
            try:
                groups = self._programs.groups(nodes)
                self._fork([Loop([self._make(node, groups.get(node)) for node in nodes])])
            except (OSError, ValueError) as error:
                self._log.write(f"not started again: {error}")
                for node in nodes:
                    self._restarts.died(node, clock.monotonic())
            else:
                for node in nodes:
                    self._counters.cells(node)[RESTARTS] += 1

    def _lose_successor(self) -> None:
        """It has died; the next look starts another."""
        self._log.write("the supervisor's successor has died")
        self._successor.close()
        self._successor = NOBODY

    def _reap(self, child: Child) -> None:
        """`child` has ended."""
        result = os.waitid(os.P_PIDFD, child.fd, os.WEXITED)
        assert result is not None
        status = result.si_status
        how = (
            f"exit status {status}"
            if result.si_code == os.CLD_EXITED
            else signal.Signals(status).name
        )
        del self._children[child.fd]
        os.close(child.fd)
        self._log.write(f"process {child.pid} of {self._names(child)} has ended: {how}")
        for node in child.nodes:
            if self._server_of.get(node) != child.pid:
                continue  # another serves it since
            cells = self._counters.cells(node)
            self._ended[node] = how
            self._clear(node, child.pid)
            if cells[WANTED] and not self._ending and cells[DEATHS] == self._deaths[node]:
                cells[DEATHS] += 1
        self._note_deaths(child.nodes)

    def _clear(self, node: int, pid: int) -> None:
        """Show in the counters that `pid` serves `node` no more."""
        cells = self._counters.cells(node)
        if cells[PID] == pid:
            cells[PID] = cells[CONVERGED] = 0

    def _answer(self) -> None:
        commands = {
            "start": self._start,
            "stop": self._stop,
            "kill": self._kill,
            "restart": self._restart,
        }
        request_line.answer(self._server, {**commands, "list": self._list})

    def _start(self, name: str) -> dict[str, Any]:
        node = self._daemons.node(name)
        (child,) = self._fork([Loop([self._make(node, self._programs.groups([node]).get(node))])])
        self._want(node, True)
        return {"pid": child.pid}

    def _want(self, node: int, wanted: bool) -> None:
        """Somebody asked for the daemon of `node` to run, or to end."""
        self._counters.cells(node)[WANTED] = wanted
        self._restarts.forget(node)

    def _restart(self, name: str) -> dict[str, Any]:
        """End the daemon if there is one, and hangs though it may, and start it.

        One that hangs takes those with it that share its process; they are started again as any
        that die."""
        if (pid := control_socket.holder(self._directory, name)) is not None:
            try:
                self._stop(name)
            except TimeoutError:
                self._successor.beat()
                os.kill(pid, signal.SIGKILL)
                control_socket.wait_until_ended(self._directory, name, STOP_S)
        return self._start(name)

    def _stop(self, name: str) -> dict[str, Any]:
        self._want(self._daemons.node(name), False)
        self._successor.beat()  # each of the two may take seconds
        control_socket.ask(self._directory, name, "stop")
        control_socket.wait_until_ended(self._directory, name, STOP_S)
        return {}

    def _kill(self, name: str) -> dict[str, Any]:
        """A daemon that shares its process with others is only dropped, which their neighbours
        cannot tell."""
        node = self._daemons.node(name)
        pid = control_socket.holder(self._directory, name)
        if pid is None:
            raise ValueError(f"{name} has no daemon")
        if any(child.pid == pid and len(child.nodes) > 1 for child in self._children.values()):
            return self._stop(name)
        self._want(node, False)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        control_socket.wait_until_ended(self._directory, name, STOP_S)
        self._clear(node, pid)
        return {}

    def _list(self) -> dict[str, Any]:
        return {
            at.name: {
                "pid": control_socket.holder(self._directory, at.name),
                "ended": self._ended.get(node),
            }
            for node, at in self._daemons.interfaces.items()
        }

    def end_all(self) -> None:
        """Ask the children to end, and see to it that they do; first the one that would take this
        one's place."""
        self._ending = True
        if self._successor is not NOBODY:
            self._successor.end()
        for number in (signal.SIGTERM, signal.SIGKILL):
            for child in self._children.values():
                signal.pidfd_send_signal(child.fd, number)
            end = clock.monotonic() + STOP_S
            while self._children and clock.monotonic() < end:
                for fd, _ in self._poll.poll(max(0.0, end - clock.monotonic())):
                    if fd in self._children:
                        self._reap(self._children[fd])


if __name__ == "__main__":
    main(sys.argv[1:])
