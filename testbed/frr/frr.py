"""FRR, the routing suite, on the routers of a network without a scheme, for comparison.

zebra, bfdd and the daemon of a routing protocol run in each router's namespace.  Their environment
has the run's id and the run's directory has all their files, so removing the run removes both.
FRR's two fixed directories are bind mounts in a mount namespace of each daemon.

After convergence they get the priority of our daemons, round-robin.  Earlier they would starve:
starting threads of FRR spin until other threads have run.  The kernel kills a daemon that spins for
SPIN_S at that priority, because overloaded daemons would stop the machine.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path

import psutil

from weft.testbed.frr.frr_config import Routing
from weft.testbed.linux import fib, netns
from weft.testbed.linux.clock import wait_until
from weft.testbed.machine.features import FRR
from weft.testbed.measure.kernel_counters import pss_kib
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon.child_process import REAL_TIME_PRIORITY
from weft.testbed.runs.run import ENVIRONMENT
from weft.topologies.core.address import Prefix

USER = "frr"
# $0 is the node's directory.
BIND_MOUNTS = """
for dir in /var/tmp /run/frr; do [ ! -d $dir ] || mount --bind "$0" $dir || exit; done; exec "$@"
"""
# the node's directory for its daemons, which are not root and cannot traverse the run's directory
INSIDE = "/var/tmp"
SPIN_S = 10
# soft limit: SIGXCPU; hard limit: SIGKILL
RT_LIMIT = ("prlimit", f"--rttime={SPIN_S * 1_000_000}:{2 * SPIN_S * 1_000_000}")
ISOLATION = (*RT_LIMIT, "unshare", "--mount", "sh", "-c", BIND_MOUNTS)
UP_S = 300.0
ANSWER_S = 10.0


class Frr:
    """FRR on `network`, configured by `routing`."""

    def __init__(self, network: RunningNetwork, routing: Routing) -> None:
        self.network = network
        self.routing = routing
        self.directory = network.run.directory / "frr"
        self.processes: dict[int, dict[str, subprocess.Popen[bytes]]] = {
            node: {} for node in routing.nodes
        }

    def start(self) -> None:
        """Start all daemons and return when they have converged.

        Raises:
            OSError: a daemon ended; the message has its output.
        """
        for node in self.processes:
            with self.network.at(node) as kernel:
                kernel.request(self.routing.messages(node))
            directory = self._directory(node)
            directory.mkdir(parents=True)
            shutil.chown(directory, USER, USER)
            for daemon, text in self.routing.files(node).items():
                (directory / f"{daemon}.conf").write_text(text)
        for daemon in self.routing.daemons:
            for node, processes in self.processes.items():
                processes[daemon] = self._spawn(node, daemon)
            for node in self.processes:
                wait_until(
                    f"{daemon} of {self._name(node)}",
                    partial(self._is_ready, node, daemon),
                    timeout_s=UP_S,
                )
        self.wait_until_converged()
        self._promote()

    def stop(self) -> None:
        """Kill all daemons by their process ids."""
        for process in self._all_processes():
            process.kill()
        for process in self._all_processes():
            process.wait()

    def _all_processes(self) -> Iterator[subprocess.Popen[bytes]]:
        for processes in self.processes.values():
            yield from processes.values()

    def wait_until_converged(self, timeout_s: float = UP_S) -> None:
        """Return when each node has its routes and BFD sessions with all its neighbours.

        Raises:
            TimeoutError: the message names a node without.
        """
        self.check()
        for node in self.processes:
            name = self._name(node)
            has_routes = partial(self._has_routes, node, self.routing.expected(node))
            wait_until(f"all routes at {name}", has_routes, timeout_s=timeout_s)
            wait_until(
                f"BFD's sessions at {name}",
                partial(self._has_sessions, node),
                timeout_s=timeout_s,
                every_s=0.2,
            )

    def pids(self) -> set[int]:
        """Return the process ids of all daemons."""
        return {process.pid for process in self._all_processes()}

    def memory_kib(self) -> list[int]:
        """Return the proportional set size of each node's daemons."""
        return [
            sum(pss_kib(process.pid) for process in processes.values())
            for processes in self.processes.values()
        ]

    def check(self) -> None:
        """Check that all daemons run.

        Raises:
            OSError: a daemon has ended; the message has its output.
        """
        for node, processes in self.processes.items():
            for daemon in processes:
                self._check(node, daemon)

    def sessions_up(self, node: int) -> int:
        """Return the number of BFD sessions of `node` that are up."""
        peers = json.loads(self.ask(node, "bfdd", "show bfd peers json"))
        return sum(peer["status"] == "up" for peer in peers)

    def losses(self) -> int:
        """Return how often BFD lost a neighbour at any node since the start.

        Only neighbours that the protocol remembers count: BGP keeps them, OSPF forgets a lost one.
        """
        losses = 0
        for node in self.processes:
            peers = json.loads(self.ask(node, "bfdd", "show bfd peers counters json"))
            losses += sum(peer["session-down"] for peer in peers)
        return losses

    def ask(self, node: int, daemon: str, command: str) -> str:
        """Return a daemon's answer to a command such as `show bfd peers json`.

        Raises:
            OSError: there is no answer, or the daemon refuses the command.
        """
        with socket.socket(socket.AF_UNIX) as vty:
            vty.settimeout(ANSWER_S)
            vty.connect(str(self._directory(node) / f"{daemon}.vty"))
            for line in ("enable", command):
                vty.sendall(line.encode() + b"\0")
                answer = b""
                while answer[-4:-1] != bytes(3):  # the end: three zeros and a status
                    chunk = vty.recv(1 << 16)
                    if not chunk:
                        raise OSError(f"{daemon} of {self._name(node)} stopped after {answer!r}")
                    answer += chunk
        text = answer[:-4].decode()
        if answer[-1]:
            raise OSError(f"{daemon} of {self._name(node)} refuses {command!r}: {text.strip()}")
        return text

    def _has_routes(self, node: int, expected: Mapping[Prefix, int]) -> bool:
        with self.network.at(node) as kernel:
            routes = fib.routes(kernel, self.routing.kernel)
        return all(len(routes.get(prefix, ())) == hops for prefix, hops in expected.items())

    def _has_sessions(self, node: int) -> bool:
        return self.sessions_up(node) >= self.routing.sessions(node)

    def _is_ready(self, node: int, daemon: str) -> bool:
        self._check(node, daemon)
        return (self._directory(node) / f"{daemon}.vty").exists()

    def _check(self, node: int, daemon: str) -> None:
        status = self.processes[node][daemon].poll()
        if status is not None:
            text = (self._directory(node) / f"{daemon}.out").read_text().strip() or "nothing"
            spun = status == -signal.SIGXCPU
            cause = f", after {SPIN_S} s of processor time without a rest" if spun else ""
            name = f"{daemon} of {self._name(node)}"
            raise OSError(f"{name} has ended with status {status}{cause}; it said {text}")

    def _name(self, node: int) -> str:
        return self.network.topology.naming.name(node)

    def _promote(self) -> None:
        """Give all threads the priority of our daemons, if that is permitted."""
        threads = [thread.id for pid in self.pids() for thread in psutil.Process(pid).threads()]
        with suppress(PermissionError):
            for thread in threads:
                with suppress(ProcessLookupError):  # the thread has ended
                    os.sched_setscheduler(thread, os.SCHED_RR, os.sched_param(REAL_TIME_PRIORITY))

    def _directory(self, node: int) -> Path:
        return self.directory / self._name(node)

    def _spawn(self, node: int, daemon: str) -> subprocess.Popen[bytes]:
        directory = self._directory(node)
        options = {
            "-u": USER,
            "-g": USER,
            "-A": "127.0.0.1",
            "-P": "0",
            "-f": f"{INSIDE}/{daemon}.conf",
            "-i": f"{INSIDE}/{daemon}.pid",
            "-z": f"{INSIDE}/zserv",
            "--vty_socket": INSIDE,
            "--log": "stdout",
            "--log-level": "errors",
        }
        if daemon == "bfdd":
            options["--bfdctl"] = f"{INSIDE}/bfdd.sock"
        command = [*ISOLATION, str(directory), f"{FRR}/{daemon}", *chain(*options.items())]
        environment = os.environ | {ENVIRONMENT: self.network.run.id}
        with (
            open(directory / f"{daemon}.out", "wb") as output,
            netns.inside(self.network.netns(node)),
        ):
            return subprocess.Popen(command, stdout=output, stderr=output, env=environment)


@contextmanager
def frr(network: RunningNetwork, routing: Routing) -> Iterator[Frr]:
    """Run FRR on `network` during a `with` block; the network stays.

    Raises:
        ValueError: FRR is not installed.
        OSError: a daemon has ended.
    """
    from weft.testbed.machine import doctor

    doctor.require("frr", "FRR beside our daemons")
    routed = Frr(network, routing)
    try:
        routed.start()
        yield routed
        routed.check()
    finally:
        routed.stop()
