"""The parent of a run's daemons: python -m testbed.agent.supervisor DIRECTORY PROCESSES OWNER, started by
control.launch().

A fresh interpreter that has imported no more than daemons need forks PROCESSES that share the nodes (0: one for each
node), and starts and ends daemons on request.  A daemon that dies stays dead until somebody starts it again; how it
ended is in log/supervisor.log.

Nobody outlives the run unnoticed: the daemons die with the supervisor (PDEATHSIG), the supervisor ends with the process
OWNER (0: with nobody), and all of them carry the run's id in their environment, by which cleaning up finds them.

Requests are lines of JSON on the stream socket daemons.sock: ["start", NODE], ["stop", NODE], ["kill", NODE], ["list"].
So are the answers, {"error": text} when it cannot be done.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from daemons.core.node_config import NodeConfig
from testbed.agent import control_socket, daemon_set
from testbed.agent.counters import COLUMNS, FILE, DaemonCounters
from testbed.agent.daemon import Daemon
from testbed.agent.loop import Loop
from testbed.agent.make_daemon import Programs
from testbed.agent.rehearsal import rehearse
from testbed.authentication.credentials import RunCredentials
from testbed.forwarding.groups import Groups
from testbed.linux import clock, netns

PID, CONVERGED = COLUMNS["pid"], COLUMNS["converged"]
SOCKET = "daemons.sock"
READY = b"ready"
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
REAL_TIME_PRIORITY = 10
DESCRIPTORS_PER_NODE = 128
TOGETHER = 12
WORTH_REHEARSING = 8  # processes
START_S, STOP_S = 30.0, 5.0
REQUEST_S, REQUEST_BYTES, SHOWN_BYTES = 1.0, 4096, 80


def main(argv: Sequence[str]) -> None:
    """Serve until SIGTERM, or until the owner ends."""
    directory, processes, owner = argv
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    supervisor = Supervisor(Path(directory), int(processes), int(owner))
    try:
        supervisor.start_all()
        print(READY.decode(), flush=True)
        supervisor.serve()
    except (ValueError, OSError) as error:
        sys.exit(f"{error}")
    finally:
        supervisor.end_all()


@dataclass(frozen=True)
class Child:
    """A process that serves daemons, and a descriptor that tells when it has ended."""

    pid: int
    fd: int
    nodes: tuple[int, ...]


class Supervisor:
    """The parent of the daemons of the run in `directory`."""

    def __init__(self, directory: Path, processes: int, owner: int) -> None:
        self._directory = directory
        self._daemons = daemon_set.read(directory)
        self._counters = DaemonCounters(directory / FILE)
        self._log = control_socket.Log(directory, "supervisor")
        self._credentials = RunCredentials(directory)
        self._processes = processes
        self._children: dict[int, Child] = {}  # by descriptor
        self._ended: dict[int, str] = {}  # node -> how its last daemon did
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
        """Start every daemon of the run; ValueError or OSError says what keeps one from starting."""
        nodes = list(self._daemons.interfaces)
        needed = 100 + DESCRIPTORS_PER_NODE * len(nodes)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(needed, soft), max(needed, hard)))
        except ValueError:  # root without CAP_SYS_RESOURCE; what is needed is an upper bound
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        # Everything that is done once is done here, before there are children: a child's own memory is what it writes
        # to, and opening sockets alone writes, object by object, to more than a megabyte of what Python shares.
        count = min(self._processes or len(nodes), len(nodes))
        shares = [nodes[i * len(nodes) // count : (i + 1) * len(nodes) // count] for i in range(count)]
        if count >= WORTH_REHEARSING:
            rehearse(self._directory / "rehearsal", self._daemons)
        groups = self._programs.groups(nodes)
        loops = [Loop([self._make(node, groups.get(node)) for node in share]) for share in shares]
        self._log.write(f"began: process {os.getpid()}, {len(nodes)} daemons in {count} processes")
        gc.collect()
        gc.freeze()  # nor do children look for garbage in what they share
        self._fork(loops)

    def _make(self, node: int, groups: Groups | None) -> Daemon:
        at, cells = self._daemons.interfaces[node], self._counters.cells(node)
        credentials = self._credentials.of(at)
        return self._programs.make_daemon(self._directory, at, self._config(node), cells, credentials, groups)

    def _config(self, node: int) -> NodeConfig:
        """Daemons that share a process tick a dozen at a time, those of neighbouring nodes together: what one of them
        brings into the cache, of Python and of the network, serves the next."""
        config = self._daemons.configs[node]
        if not self._processes:
            return config
        nodes = list(self._daemons.interfaces)
        first = nodes.index(node) // TOGETHER * TOGETHER
        return replace(config, phase_fraction=1 - first / len(nodes))

    def _fork(self, loops: Sequence[Loop]) -> list[Child]:
        """Let each of `loops` run in a process of its own; returns when their daemons have started."""
        shared = [0, 1, 2, *self._programs.descriptors()]
        briefs = [(loop, loop.name().encode(), gaps([*shared, *loop.descriptors()])) for loop in loops]
        cells = [self._counters.cells(node) for loop in loops for node in loop.nodes()[:1]]
        parent = os.getpid()
        pids: list[int] = []
        real_time(True)  # which children inherit
        # Between two forks the less is done the better: what the parent writes to is no longer shared by the child.
        for i, brief in enumerate(briefs):
            if i > 0:  # a process that begins takes milliseconds: all at once, they would keep the first from hellos
                self._wait_until_started(cells[i - 1], pids[i - 1])
            pid = os.fork()
            if pid == 0:
                run(*brief, parent)
            pids.append(pid)
        children = []
        for pid, loop, row in zip(pids, loops, cells, strict=True):
            self._wait_until_started(row, pid)
            child = Child(pid, os.pidfd_open(pid), loop.nodes())
            self._children[child.fd] = child
            self._poll.register(child.fd, select.EPOLLIN)
            children.append(child)
        real_time(False)
        for loop in loops:
            loop.disown()
        return children

    def _wait_until_started(self, cells: memoryview, pid: int) -> None:
        """Return when the child `pid` serves the node whose row this is."""
        end = clock.monotonic() + START_S
        while cells[PID] != pid:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                raise OSError(f"process {pid} died before it had started; see {self._directory / 'log'}")
            if clock.monotonic() > end:
                raise TimeoutError(f"process {pid} has not started after {START_S:g} s")
            clock.sleep(0.0002)

    def _names(self, child: Child) -> str:
        return ", ".join(self._daemons.interfaces[node].name for node in child.nodes)

    def serve(self) -> None:
        """Answer requests and reap children until the owner ends."""
        while True:
            for fd, _ in self._poll.poll():
                if fd in self._children:
                    self._reap(self._children[fd])
                elif fd == self._owner:
                    return
                else:
                    self._answer()

    def _reap(self, child: Child) -> None:
        """`child` has ended."""
        result = os.waitid(os.P_PIDFD, child.fd, os.WEXITED)
        assert result is not None
        status = result.si_status
        how = f"exit status {status}" if result.si_code == os.CLD_EXITED else signal.Signals(status).name
        del self._children[child.fd]
        os.close(child.fd)
        for node in child.nodes:
            self._ended[node] = how
            self._clear(node, child.pid)
        self._log.write(f"process {child.pid} of {self._names(child)} has ended: {how}")

    def _clear(self, node: int, pid: int) -> None:
        """Show in the counters that `pid` serves `node` no more."""
        cells = self._counters.cells(node)
        if cells[PID] == pid:
            cells[PID] = cells[CONVERGED] = 0

    def _answer(self) -> None:
        connection, _ = self._server.accept()
        with connection, suppress(OSError):  # who asked has gone, or does not say what it wants
            told = self._do(read_line(connection))
            connection.sendall(json.dumps(told).encode() + b"\n")

    def _do(self, line: bytes) -> dict[str, Any]:
        commands: dict[str, Callable[..., dict[str, Any]]] = {
            "start": self._start,
            "stop": self._stop,
            "kill": self._kill,
            "list": self._list,
        }
        try:
            words = json.loads(line)
            if not words or not all(isinstance(word, str) for word in words):
                raise TypeError
            return commands[words[0]](*words[1:])
        except (KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError, RecursionError):
            said = ascii(line[:SHOWN_BYTES].decode(errors="replace").strip())
            return {"error": f'{said} is no request; write ["start", NODE], or stop, kill or list'}
        except (ValueError, OSError) as error:
            return {"error": str(error)}

    def _start(self, name: str) -> dict[str, Any]:
        node = self._daemons.node(name)
        (child,) = self._fork([Loop([self._make(node, self._programs.groups([node]).get(node))])])
        return {"pid": child.pid}

    def _stop(self, name: str) -> dict[str, Any]:
        self._daemons.node(name)
        control_socket.ask(self._directory, name, "stop")
        control_socket.wait_until_ended(self._directory, name, STOP_S)
        return {}

    def _kill(self, name: str) -> dict[str, Any]:
        """A daemon that shares its process with others is only dropped, which their neighbours cannot tell."""
        node = self._daemons.node(name)
        pid = control_socket.holder(self._directory, name)
        if pid is None:
            raise ValueError(f"{name} has no daemon")
        if any(child.pid == pid and len(child.nodes) > 1 for child in self._children.values()):
            return self._stop(name)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        control_socket.wait_until_ended(self._directory, name, STOP_S)
        self._clear(node, pid)
        return {}

    def _list(self) -> dict[str, Any]:
        return {
            at.name: {"pid": control_socket.holder(self._directory, at.name), "ended": self._ended.get(node)}
            for node, at in self._daemons.interfaces.items()
        }

    def end_all(self) -> None:
        """Ask the children to end, and see to it that they do."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for child in self._children.values():
                signal.pidfd_send_signal(child.fd, number)
            end = clock.monotonic() + STOP_S
            while self._children and clock.monotonic() < end:
                for fd, _ in self._poll.poll(max(0.0, end - clock.monotonic())):
                    if fd in self._children:
                        self._reap(self._children[fd])


def read_line(connection: socket.socket) -> bytes:
    """What was sent up to the end of a line, or of REQUEST_BYTES; TimeoutError if it has not come within a second."""
    end, line = clock.monotonic() + REQUEST_S, b""
    while b"\n" not in line and len(line) < REQUEST_BYTES:
        connection.settimeout(max(1e-3, end - clock.monotonic()))
        if not (more := connection.recv(REQUEST_BYTES - len(line))):
            break
        line += more
        if clock.monotonic() > end:
            raise TimeoutError("a request that does not end")
    connection.settimeout(REQUEST_S)
    return line


def run(loop: Loop, name: bytes, others: Sequence[tuple[int, int]], parent: int) -> NoReturn:
    """In a process forked for it: run `loop`, without the descriptors of others."""
    status = 1
    try:
        for first, after in others:
            os.closerange(first, after)
        if not netns.libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) and os.getppid() == parent:
            netns.libc.prctl(PR_SET_NAME, name)
            loop.run()
            status = 1 if loop.failed else 0
    except SystemExit:
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(status)


def real_time(wanted: bool) -> None:
    """Have real-time priority from now on, or not; the counters tell whether a daemon has got it."""
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


if __name__ == "__main__":
    main(sys.argv[1:])
