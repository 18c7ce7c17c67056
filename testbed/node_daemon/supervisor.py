"""The parent process of a run's daemons.

    python -m weft.testbed.node_daemon.supervisor DIRECTORY PROCESSES OWNER LOCK RESTART [again WHY]

A fresh interpreter that has imported only what daemons need forks PROCESSES that share the nodes,
and starts and ends daemons on request.  With RESTART 1 it starts daemons again that died, ends
processes that hang, and has a successor (watchdog.py).  log/supervisor.log says how daemons ended,
the counters how often.

Daemons die with the supervisor (PDEATHSIG), the supervisor ends with the process OWNER (0: none),
and all carry the run's id in their environment for `weft clean`.  LOCK is the descriptor of the
run's lock, -1 if another process keeps the run.

Requests to its socket (daemon_files.py) are `start NODE`, `stop NODE`, `kill NODE` and
`restart NODE`; the answer has `error` after a failure.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

from weft.daemons.core.node_config import NodeConfig
from weft.testbed.linux import clock
from weft.testbed.linux.process import allow_descriptors
from weft.testbed.node_daemon import daemon_files, watchdog
from weft.testbed.node_daemon.child_process import Child, gaps, real_time, rehearse, run
from weft.testbed.node_daemon.counters import COLUMNS, FILE, DaemonCounters
from weft.testbed.node_daemon.daemon import Daemon
from weft.testbed.node_daemon.linux_capabilities import NodeMaps, Programs
from weft.testbed.node_daemon.loop import Loop
from weft.testbed.node_daemon.sealed_channel import RunCredentials
from weft.testbed.node_daemon.watchdog import LOOK_S, NO_SUCCESSOR, Hangs, Restarts

PID, CONVERGED, TICKS, REQUIRED, DEATHS, RESTARTS = (
    COLUMNS[name] for name in ("pid", "converged", "ticks", "required", "deaths", "restarts")
)
NAME = "supervisor"
READY = b"ready"
DESCRIPTORS_PER_NODE = 128
TOGETHER = 12
WORTH_REHEARSING = 8  # processes
START_S, STOP_S = 30.0, 5.0


def main(argv: Sequence[str]) -> None:
    """Serve until SIGTERM, or until the owner ends."""
    directory, processes, owner, lock, restart, *again = argv
    ready = os.dup(1)  # a scheme of another package may print while it is imported
    os.dup2(2, 1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    supervisor = Supervisor(
        Path(directory), int(processes), int(owner), int(lock) if restart == "1" else None
    )
    try:
        if again:
            supervisor.succeed(again[-1])
        else:
            supervisor.start_all()
        os.write(ready, READY + b"\n")
        os.close(ready)
        supervisor.serve()
    except (ValueError, OSError) as error:
        sys.exit(f"{error}")
    finally:
        supervisor.end_all()


class Supervisor:
    """The parent of the daemons of the run in `directory`."""

    def __init__(self, directory: Path, processes: int, owner: int, lock: int | None) -> None:
        """Open the run's files and the socket for requests.

        Args:
            directory: of the run.
            processes: number of processes that share the daemons.
            owner: the process with which the supervisor ends; 0: none.
            lock: descriptor that a successor holds (-1: none); None: nothing that dies is replaced.
        """
        self._place = daemon_files.Lock(directory, NAME)
        self._directory = directory
        self._daemons = daemon_files.read_daemons(directory)
        self._counters = DaemonCounters(directory / FILE)
        self._log = daemon_files.Log(directory, NAME)
        self._credentials = RunCredentials(directory)
        self._programs = Programs(
            self._daemons.program, self._daemons.first_switch, self._daemons.transit
        )
        self._processes = processes
        self._shared = processes < len(self._daemons.interfaces)
        self._children: dict[int, Child] = {}  # by descriptor
        self._restarts = Restarts()
        self._hangs = Hangs()
        self._look_at_s = inf
        self._deaths: dict[int, int] = {}  # by node: deaths that have been handled
        self._server_of: dict[int, int] = {}  # by node: the process that serves it
        self._ending = False
        self._lock = lock
        self._successor = NO_SUCCESSOR
        self._owner = os.pidfd_open(owner) if owner else -1
        self._requests = daemon_files.Requests(directory, NAME)
        self._poll = self._new_poll()

    def _new_poll(self) -> select.epoll:
        """Return a poll of the requests and the owner."""
        poll = select.epoll()
        poll.register(self._requests, select.EPOLLIN)
        if self._owner >= 0:
            poll.register(self._owner, select.EPOLLIN)
        return poll

    def start_all(self) -> None:
        """Start every daemon of the run.

        Raises:
            ValueError, OSError: a daemon cannot start.
        """
        nodes = list(self._daemons.interfaces)
        for node in nodes:
            self._counters.cells(node)[REQUIRED] = 1
        if min(self._processes, len(nodes)) >= WORTH_REHEARSING:
            rehearse(self._directory / "rehearsal", self._daemons)
        self._start_nodes(nodes)

    def succeed(self, why: str) -> None:
        """Start the daemons that died with the last supervisor, and those that it had to start.

        why: how that supervisor ended, for the log.
        """
        nodes = []
        for node, interfaces in self._daemons.interfaces.items():
            cells = self._counters.cells(node)
            daemon_files.wait_until_ended(self._directory, interfaces.name, STOP_S)
            if cells[REQUIRED]:
                cells[DEATHS] += bool(cells[PID])
                cells[RESTARTS] += 1
                cells[PID] = cells[CONVERGED] = 0
                nodes.append(node)
        self._log.write(f"process {os.getpid()} takes the supervisor's place: {why}")
        self._start_nodes(nodes)

    def _start_nodes(self, nodes: Sequence[int]) -> None:
        with suppress(ValueError):  # as many as this process may
            allow_descriptors(100 + DESCRIPTORS_PER_NODE * len(nodes))
        # All loops are made before the first fork: a child owns the memory that it writes, and
        # opening sockets alone writes to more than a megabyte of Python's objects.
        count = min(self._processes, len(nodes))
        shares = [
            nodes[i * len(nodes) // count : (i + 1) * len(nodes) // count] for i in range(count)
        ]
        loops = self._loops(shares)
        self._log.write(f"began: process {os.getpid()}, {len(nodes)} daemons in {count} processes")
        gc.collect()
        gc.freeze()  # children do not collect garbage in shared objects
        self._deaths = {
            node: self._counters.cells(node)[DEATHS] for node in self._daemons.interfaces
        }
        self._fork(loops)
        if self._lock is not None:
            self._begin_to_watch(self._lock)

    def _begin_to_watch(self, lock: int) -> None:
        """Start a watchdog, which holds `lock`, and watch the daemons from now on."""
        slowest_s = (
            max((config.interval_ms for config in self._daemons.configs.values()), default=0) / 1000
        )
        self._look_s = max(LOOK_S, 2 * slowest_s)
        self._look_at_s = clock.monotonic() + self._look_s
        self._successor = watchdog.start_successor(lock, self._look_s)
        self._poll.register(self._successor.fd, select.EPOLLIN)

    def _loops(self, shares: Sequence[Sequence[int]]) -> list[Loop]:
        """Return a loop with new daemons for each share of nodes; the maps are read once."""
        maps = self._programs.node_maps([node for share in shares for node in share])
        return [Loop([self._make(node, maps[node]) for node in share]) for share in shares]

    def _make(self, node: int, maps: NodeMaps) -> Daemon:
        interfaces = self._daemons.interfaces[node]
        return Daemon(
            self._directory,
            interfaces,
            self._config(node),
            self._counters.cells(node),
            self._credentials.of(interfaces),
            maps,
        )

    def _config(self, node: int) -> NodeConfig:
        """Return the configuration of `node`, with its phase in a shared process.

        Neighbouring nodes tick together, a dozen at a time, because they share the cache.
        """
        config = self._daemons.configs[node]
        if not self._shared:
            return config
        nodes = list(self._daemons.interfaces)
        first = nodes.index(node) // TOGETHER * TOGETHER
        return replace(config, phase_fraction=1 - first / len(nodes))

    def _fork(self, loops: Sequence[Loop]) -> list[Child]:
        """Run each of `loops` in its own process, and return when their daemons have started."""
        rows = [self._counters.cells(loop.nodes()[0]) for loop in loops]
        pids = self._fork_processes(loops, rows)
        children = []
        for pid, loop in zip(pids, loops, strict=True):
            child = Child(pid, os.pidfd_open(pid), loop.nodes())
            children.append(child)
            self._children[child.fd] = child
            self._poll.register(child.fd, select.EPOLLIN)
            self._server_of |= dict.fromkeys(child.nodes, pid)
            loop.disown()
        for pid, row in zip(pids, rows, strict=True):
            self._wait_until_started(row, pid)
        return children

    def _fork_processes(self, loops: Sequence[Loop], rows: Sequence[memoryview]) -> list[int]:
        """Fork a process for each of `loops`; return their ids.  `rows`: of their first nodes."""
        shared = [0, 1, 2, *self._programs.descriptors()]
        briefs = [
            (loop, loop.name().encode(), gaps([*shared, *loop.descriptors()])) for loop in loops
        ]
        parent = os.getpid()
        pids: list[int] = []
        real_time(True)  # children inherit it
        # as little as possible between two forks: the parent's writes unshare its pages
        for number, brief in enumerate(briefs):
            # starting takes milliseconds: all at once would delay the first daemon's hellos
            if number > 0:
                self._wait_until_started(rows[number - 1], pids[number - 1])
            pid = os.fork()
            if pid == 0:
                run(*brief, parent)
            pids.append(pid)
        real_time(False)
        return pids

    def _wait_until_started(self, cells: memoryview, pid: int) -> None:
        """Return when the child `pid` serves the node with this row of counters."""
        end_s = clock.monotonic() + START_S
        while cells[PID] != pid:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                raise OSError(
                    f"process {pid} died before it had started; see {self._directory / 'log'}"
                )
            if clock.monotonic() > end_s:
                raise TimeoutError(f"process {pid} has not started after {START_S:g} s")
            self._successor.beat()
            clock.sleep(0.0002)

    def _names(self, child: Child) -> str:
        return ", ".join(self._daemons.interfaces[node].name for node in child.nodes)

    def serve(self) -> None:
        """Answer requests, reap children and replace dead ones until the owner ends."""
        while True:
            next_s = min(self._look_at_s, self._restarts.deadline)
            wait_s = max(0.0, next_s - clock.monotonic()) if next_s < inf else None
            for fd, _ in self._poll.poll(wait_s):
                if fd in self._children:
                    self._reap(self._children[fd])
                elif fd == self._owner:
                    return
                elif fd == self._successor.fd:
                    self._lose_successor()
                else:
                    self._answer()
            if clock.monotonic() >= self._look_at_s:
                self._look()
            self._restart_dead()

    def _look(self) -> None:
        """End the processes that hang, and schedule restarts of dead daemons."""
        self._look_at_s = clock.monotonic() + self._look_s
        self._successor.beat()
        if self._successor is NO_SUCCESSOR and self._lock is not None:
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
        """Schedule restarts of the dead daemons of `nodes`."""
        for node in nodes:
            cells = self._counters.cells(node)
            if cells[DEATHS] != self._deaths[node]:
                self._deaths[node] = cells[DEATHS]
                if cells[REQUIRED] and self._lock is not None:
                    delay = self._restarts.died(node, clock.monotonic())
                    name = self._daemons.interfaces[node].name
                    self._log.write(
                        f"the daemon of {name} has died; it is started again in {delay:g} s"
                    )

    def _restart_dead(self) -> None:
        """Start the daemons that are due; those of a shared process share one again."""
        due = self._restarts.take(clock.monotonic())
        for nodes in [due] if self._shared and due else [[node] for node in due]:
            try:
                self._fork(self._loops([nodes]))
            except (OSError, ValueError) as error:
                self._log.write(f"not started again: {error}")
                for node in nodes:
                    self._restarts.died(node, clock.monotonic())
            else:
                for node in nodes:
                    self._counters.cells(node)[RESTARTS] += 1

    def _lose_successor(self) -> None:
        """Handle the death of the successor; the next look starts another."""
        self._log.write("the supervisor's successor has died")
        self._successor.close()
        self._successor = NO_SUCCESSOR

    def _reap(self, child: Child) -> None:
        """Handle the end of `child`."""
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
                continue  # another process serves it by now
            cells = self._counters.cells(node)
            self._clear(node, child.pid)
            if cells[REQUIRED] and not self._ending and cells[DEATHS] == self._deaths[node]:
                cells[DEATHS] += 1
        self._note_deaths(child.nodes)

    def _clear(self, node: int, pid: int) -> None:
        """Note in the counters that `pid` no longer serves `node`."""
        cells = self._counters.cells(node)
        if cells[PID] == pid:
            cells[PID] = cells[CONVERGED] = 0

    def _answer(self) -> None:
        """Answer the request that waits."""
        if message := self._requests.read():
            request, sender = message
            self._requests.answer(sender, self._do(request))

    def _do(self, request: str) -> dict[str, Any]:
        """Carry out a request; return its answer."""
        commands = {
            "start": self._start,
            "stop": self._stop,
            "kill": self._kill,
            "restart": self._restart,
        }
        command, _, name = request.partition(" ")
        if command not in commands:
            known = "write start NODE, or stop, kill or restart"
            return {"error": f"{request!a} is no request; {known}"}
        try:
            return commands[command](name)
        except (ValueError, OSError) as error:
            return {"error": str(error)}

    def _start(self, name: str) -> dict[str, Any]:
        node = self._daemons.node(name)
        (child,) = self._fork(self._loops([[node]]))
        self._want(node, True)
        return {"pid": child.pid}

    def _want(self, node: int, running: bool) -> None:
        """Record a request that the daemon of `node` run, or end."""
        self._counters.cells(node)[REQUIRED] = running
        self._restarts.forget(node)

    def _restart(self, name: str) -> dict[str, Any]:
        """End the daemon, if there is one, also if it hangs, and start it.

        Daemons that share the process of a hanging one die with it, and are started again.
        """
        if (pid := daemon_files.holder(self._directory, name)) is not None:
            try:
                self._stop(name)
            except TimeoutError:
                self._successor.beat()
                os.kill(pid, signal.SIGKILL)
                daemon_files.wait_until_ended(self._directory, name, STOP_S)
        return self._start(name)

    def _stop(self, name: str) -> dict[str, Any]:
        self._want(self._daemons.node(name), False)
        self._successor.beat()  # each of the two may take seconds
        daemon_files.ask(self._directory, name, "stop")
        daemon_files.wait_until_ended(self._directory, name, STOP_S)
        return {}

    def _kill(self, name: str) -> dict[str, Any]:
        """Kill a daemon; one that shares its process is only stopped."""
        node = self._daemons.node(name)
        pid = daemon_files.holder(self._directory, name)
        if pid is None:
            raise ValueError(f"{name} has no daemon")
        if any(child.pid == pid and len(child.nodes) > 1 for child in self._children.values()):
            return self._stop(name)
        self._want(node, False)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        daemon_files.wait_until_ended(self._directory, name, STOP_S)
        self._clear(node, pid)
        return {}

    def end_all(self) -> None:
        """End the successor first, and then the children, by SIGKILL if they ignore SIGTERM."""
        self._ending = True
        if self._successor is not NO_SUCCESSOR:
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
