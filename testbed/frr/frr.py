"""FRR, the routing suite, on the routers of a network without a scheme: our daemons are compared
with it.

zebra, bfdd and the daemon of a routing protocol run in each router's namespace.  They carry the
run's id in their environment and keep all their files in its directory, so that whatever removes
the run removes them: each has a mount namespace of its own in which the two places that FRR has
fixed are there, too.

Once they have converged they get the priority of our own daemons, in turns and not first come,
first served.  Not before: while they begin, threads of FRR spin until others of theirs have had a
turn, and where hundreds spin at that priority none makes progress.  One that does not rest for
SPIN_S then is ended by the kernel: daemons that ask for more time than there is would stop the
machine.
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
from pathlib import Path

import psutil

from weft.testbed.frr.frr_config import Routing
from weft.testbed.linux import fib, netns
from weft.testbed.linux.clock import wait_until
from weft.testbed.machine.features import FRR
from weft.testbed.measure.host_load import pss_kib
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon.child_process import REAL_TIME_PRIORITY
from weft.testbed.runs.run import ENVIRONMENT
from weft.topologies.core.address import Prefix

USER = "frr"
# $0 is the daemon's place.  The names of other runs' namespaces are copied, too, and go when those
# are unlinked.
CONTAINED = (
    'for dir in /var/tmp /run/frr; do [ ! -d $dir ] || mount --bind "$0" $dir || '
    'exit; done; exec "$@"'
)
# where a node's daemons, which are not root and cannot come through a run's folder, have theirs
INSIDE = "/var/tmp"
SPIN_S = 10
# SIGXCPU first, and then SIGKILL
LIMITED = ("prlimit", f"--rttime={SPIN_S * 1_000_000}:{2 * SPIN_S * 1_000_000}")
APART = (*LIMITED, "unshare", "--mount", "sh", "-c", CONTAINED)
UP_S = 300.0
ANSWER_S = 10.0


class Frr:
    """FRR on `network`, told what `routing` says."""

    def __init__(self, network: RunningNetwork, routing: Routing) -> None:
        self.network = network
        self.routing = routing
        self.directory = network.run.directory / "frr"
        self.processes: dict[int, dict[str, subprocess.Popen[bytes]]] = {
            node: {} for node in routing.nodes
        }

    def start(self) -> None:
        """Start all of them, and return when they have converged; OSError with its own words if one
        ends at once."""
        for node in self.processes:
            with self.network.at(node) as kernel:
                kernel.request(self.routing.messages(node))
            place = self._place(node)
            place.mkdir(parents=True)
            shutil.chown(place, USER, USER)
            for daemon, text in self.routing.files(node).items():
                (place / f"{daemon}.conf").write_text(text)
        for daemon in self.routing.daemons:
            for node, processes in self.processes.items():
                processes[daemon] = self._spawn(node, daemon)
            for node in self.processes:
                wait_until(
                    f"{daemon} of {self._name(node)}",
                    partial(self._began, node, daemon),
                    timeout_s=UP_S,
                )
        self.wait_until_converged()
        self._promote()

    def stop(self) -> None:
        """End them, each by its process id."""
        every = [process for processes in self.processes.values() for process in processes.values()]
        for process in every:
            process.kill()
        for process in every:
            process.wait()

    def wait_until_converged(self, timeout_s: float = UP_S) -> None:
        """Return when each node has its routes and hears all its neighbours' hellos; TimeoutError
        names one that has or does not."""
        self.check()
        for node in self.processes:
            name = self._name(node)
            knows = partial(self._knows, node, self.routing.expected(node))
            wait_until(f"all routes at {name}", knows, timeout_s=timeout_s)
            wait_until(
                f"BFD's sessions at {name}",
                partial(self._hears_all, node),
                timeout_s=timeout_s,
                every_s=0.2,
            )

    def pids(self) -> set[int]:
        """Of all daemons."""
        return {
            process.pid for processes in self.processes.values() for process in processes.values()
        }

    def memory_kib(self) -> list[int]:
        """Of each node, what its daemons share with others counted in part."""
        return [
            sum(pss_kib(each.pid) for each in processes.values())
            for processes in self.processes.values()
        ]

    def check(self) -> None:
        """OSError names a daemon that has ended."""
        for node, processes in self.processes.items():
            for daemon in processes:
                self._check(node, daemon)

    def hears(self, node: int) -> int:
        """How many neighbours BFD has at `node`."""
        return [
            peer["status"] for peer in json.loads(self.ask(node, "bfdd", "show bfd peers json"))
        ].count("up")

    def losses(self) -> int:
        """How often BFD has lost a neighbour at any node since the daemons began, of neighbours
        that the protocol still knows: BGP never forgets one, OSPF does when it is lost."""
        counted = [
            json.loads(self.ask(node, "bfdd", "show bfd peers counters json"))
            for node in self.processes
        ]
        return sum(peer["session-down"] for peers in counted for peer in peers)

    def ask(self, node: int, daemon: str, command: str) -> str:
        """What a daemon answers to a command such as `show bfd peers json`; OSError if it does
        not."""
        with socket.socket(socket.AF_UNIX) as vty:
            vty.settimeout(ANSWER_S)
            vty.connect(str(self._place(node) / f"{daemon}.vty"))
            for one in ("enable", command):
                vty.sendall(one.encode() + b"\0")
                said = b""
                while said[-4:-1] != bytes(3):  # the end: three zeros and a status
                    if not (more := vty.recv(1 << 16)):
                        raise OSError(f"{daemon} of {self._name(node)} broke off after {said!r}")
                    said += more
        if said[-1]:
            raise OSError(
                f"{daemon} of {self._name(node)} refuses {command!r}: {said[:-4].decode().strip()}"
            )
        return said[:-4].decode()

    def _knows(self, node: int, expected: Mapping[Prefix, int]) -> bool:
        with self.network.at(node) as kernel:
            held = fib.routes(kernel, self.routing.kernel)
        return all(len(held.get(prefix, ())) == hops for prefix, hops in expected.items())

    def _hears_all(self, node: int) -> bool:
        return self.hears(node) >= self.routing.sessions(node)

    def _began(self, node: int, daemon: str) -> bool:
        self._check(node, daemon)
        return (self._place(node) / f"{daemon}.vty").exists()

    def _check(self, node: int, daemon: str) -> None:
        status = self.processes[node][daemon].poll()
        if status is not None:
            said = (self._place(node) / f"{daemon}.out").read_text().strip() or "nothing"
            spun = (
                f", after {SPIN_S} s of processor time without a rest"
                if status == -signal.SIGXCPU
                else ""
            )
            raise OSError(
                f"{daemon} of {self._name(node)} has ended with status {status}{spun}; it "
                f"said {said}"
            )

    def _name(self, node: int) -> str:
        return self.network.topology.naming.name(node)

    def _promote(self) -> None:
        """Give all threads the priority of our daemons; as those, they do without where that is not
        permitted."""
        threads = [thread.id for pid in self.pids() for thread in psutil.Process(pid).threads()]
        with suppress(PermissionError):
            for thread in threads:
                with suppress(ProcessLookupError):  # a thread that has ended since
                    os.sched_setscheduler(thread, os.SCHED_RR, os.sched_param(REAL_TIME_PRIORITY))

    def _place(self, node: int) -> Path:
        return self.directory / self._name(node)

    def _spawn(self, node: int, daemon: str) -> subprocess.Popen[bytes]:
        place = self._place(node)
        command = [
            *APART,
            str(place),
            f"{FRR}/{daemon}",
            "-u",
            USER,
            "-g",
            USER,
            "-A",
            "127.0.0.1",
            "-P",
            "0",
        ]
        command += [
            "-f",
            f"{INSIDE}/{daemon}.conf",
            "-i",
            f"{INSIDE}/{daemon}.pid",
            "-z",
            f"{INSIDE}/zserv",
        ]
        command += ["--vty_socket", INSIDE, "--log", "stdout", "--log-level", "errors"]
        if daemon == "bfdd":
            command += ["--bfdctl", f"{INSIDE}/bfdd.sock"]
        mark = {ENVIRONMENT: self.network.run.id}
        with open(place / f"{daemon}.out", "wb") as said, netns.inside(self.network.netns(node)):
            return subprocess.Popen(command, stdout=said, stderr=said, env=os.environ | mark)


@contextmanager
def frr(network: RunningNetwork, routing: Routing) -> Iterator[Frr]:
    """FRR on `network` for the length of a `with`; the network stays.

    ValueError, in one line, where FRR is not installed; OSError if a daemon has ended before its
    time.
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
