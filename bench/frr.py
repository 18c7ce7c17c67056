"""Our daemons beside FRR's on the same network: outage of pairs when a link dies in silence, and memory of a node.

Run as root, on a quiet machine, with Debian's package frr.  FRR runs OSPF (zebra, ospfd) and BFD (bfdd) in every
server's namespace, all of one area, each link between servers a point-to-point network and each switch a broadcast
network.  BFD's interval is that of our hellos, 30 ms, three of which may be missing; OSPF's timers are as short as they
go without harm, so that BFD is what decides.  Both sides have real-time priority, and both get the same links drawn by
the same rule among those that their packets take (recovery.py).

FRR's processes live in the run's namespaces and keep everything they write in its directory, so that whatever removes
the run removes them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.daemons import pss_kb
from bench.recovery import MOST_MS, PAIRS, SCHEME, SPECS, recovery, some_pairs
from bench.report import Line, show
from testbed import netlink, netns
from testbed.fib import RTMSG
from testbed.network import Network
from testbed.plan import End
from testbed.run import ENVIRONMENT
from testbed.wait import wait_until
from topologies import build
from topologies.address import dotted

PROGRAMS = Path("/usr/lib/frr")
DAEMONS = ("zebra", "bfdd", "ospfd")
HELLO_MS, DEAD = 30, 3
RTPROT_OSPF = 188
IFA_ADDRESS, IFA_LOCAL = 1, 2
POINT_TO_POINT, BROADCAST = 172 << 24 | 16 << 16, 172 << 24 | 24 << 16  # where the addresses of links begin
PRIORITY = 10
USER = "frr"
UP_S = 120.0


class Frr:
    """FRR on every server of a network that nobody else routes."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.directory = network.run.directory / "frr"
        self.processes: dict[int, list[subprocess.Popen[bytes]]] = {}

    def start(self) -> None:
        """Start all of them, and return when every server has a route to every other."""
        for node in range(self.network.topology.servers):
            with self.network.at(node) as socket:
                socket.request([self._address_message(node, end) for end in self._ends(node)])
            place = self._place(node)
            place.mkdir(parents=True)
            shutil.chown(place, USER, USER)
            for name, lines in self._configurations(node).items():
                (place / f"{name}.conf").write_text("\n".join(["hostname " + self._name(node), *lines, ""]))
            self.processes[node] = []
        for daemon in DAEMONS:
            for node in self.processes:
                self.processes[node].append(self._spawn(node, daemon))
            for node in self.processes:
                wait_until(f"{daemon} of {self._name(node)}", partial(self._began, node, daemon))
        servers = self.network.topology.servers
        for node in self.processes:
            wait_until(f"OSPF's routes at {self._name(node)}", partial(self._knows, servers - 1, node), timeout_s=UP_S)

    def stop(self) -> None:
        """End them, each by its process id."""
        every = [process for processes in self.processes.values() for process in processes]
        for process in every:
            process.kill()
        for process in every:
            process.wait()

    def memory_mb(self) -> float:
        """Of a node, the median, with what is shared divided among those that share it."""
        nodes = [sum(pss_kb(process.pid) for process in processes) for processes in self.processes.values()]
        return statistics.median(nodes) / 1024

    def routes(self, node: int) -> int:
        """How many servers OSPF has found for `node`."""
        found = 0
        with self.network.at(node) as socket:
            for body in socket.dump(netlink.RTM_GETROUTE, RTMSG.pack(2, 0, 0, 0, 254, 0, 0, 0, 0)):
                _, length, _, _, _, protocol, *_ = RTMSG.unpack_from(body)
                found += length == 32 and protocol == RTPROT_OSPF
        return found

    def _knows(self, servers: int, node: int) -> bool:
        return self.routes(node) >= servers

    def _began(self, node: int, daemon: str) -> bool:
        process = self.processes[node][DAEMONS.index(daemon)]
        if process.poll() is not None:
            said = (self._place(node) / f"{daemon}.out").read_text().strip()
            raise OSError(f"{daemon} of {self._name(node)} ended with status {process.returncode}: {said}")
        return (self._place(node) / f"{daemon}.vty").exists()

    def _name(self, node: int) -> str:
        return self.network.topology.naming.name(node)

    def _place(self, node: int) -> Path:
        return self.directory / self._name(node)

    def _ends(self, node: int) -> list[End]:
        return list(self.network.plan.ends[node].values())

    def _address(self, node: int, end: End) -> tuple[int, int]:
        """The address of `end`, and the length of its prefix."""
        if self.network.topology.is_crossbar(end.peer):
            switch = end.peer - self.network.topology.servers
            return BROADCAST | switch << 8 | end.peer_port + 1, 24
        first = self.network.topology.links[end.link].tolist()[0] == node
        return POINT_TO_POINT | 2 * end.link + (not first), 31

    def _address_message(self, node: int, end: End) -> netlink.Message:
        address, length = self._address(node, end)
        packed = address.to_bytes(4, "big")
        body = bytes([2, length, 0, 0]) + end.ifindex.to_bytes(4, "little")
        body += netlink.attribute(IFA_LOCAL, packed) + netlink.attribute(IFA_ADDRESS, packed)
        return netlink.Message(
            netlink.RTM_NEWADDR, netlink.CREATE, body, f"ip address add {dotted(address)}/{length} dev {end.dev}"
        )

    def _configurations(self, node: int) -> dict[str, list[str]]:
        """What each daemon reads."""
        own = dotted(self.network.topology.naming.address(node))
        ospf = ["interface lo", " ip ospf area 0"]
        for end in self._ends(node):
            kind = "broadcast" if self.network.topology.is_crossbar(end.peer) else "point-to-point"
            ospf += [f"interface {end.dev}", " ip ospf area 0", f" ip ospf network {kind}", " ip ospf bfd"]
            ospf += [" ip ospf bfd profile fast", " ip ospf hello-interval 1", " ip ospf dead-interval 4"]
        ospf += ["router ospf", f" ospf router-id {own}", " maximum-paths 1", " timers throttle spf 0 20 200"]
        ospf += [" timers throttle lsa all 20", " timers lsa min-arrival 10"]
        bfd = ["bfd", " profile fast", f"  transmit-interval {HELLO_MS}", f"  receive-interval {HELLO_MS}"]
        bfd += [f"  detect-multiplier {DEAD}"]
        # Pings are answered from the server's own address, as ours are, not from that of a link.
        zebra = ["route-map own permit 10", f" set src {own}", "ip protocol ospf route-map own"]
        return {"zebra": zebra, "bfdd": bfd, "ospfd": ospf}

    def _spawn(self, node: int, daemon: str) -> subprocess.Popen[bytes]:
        place = self._place(node)
        command = [f"{PROGRAMS}/{daemon}", "-u", USER, "-g", USER, "-A", "127.0.0.1", "-P", "0"]
        command += ["-f", f"{place}/{daemon}.conf", "-i", f"{place}/{daemon}.pid", "-z", f"{place}/zserv"]
        command += ["--vty_socket", str(place), "--log", "stdout", "--log-level", "errors"]
        if daemon == "bfdd":
            command += ["--bfdctl", f"{place}/bfdd.sock"]
        with open(place / f"{daemon}.out", "wb") as said, netns.inside(self.network.netns(node)):
            process = subprocess.Popen(
                command, stdout=said, stderr=said, env=os.environ | {ENVIRONMENT: self.network.run.id}
            )
        os.sched_setscheduler(process.pid, os.SCHED_FIFO, os.sched_param(PRIORITY))
        return process


@contextmanager
def frr(spec: str) -> Iterator[Frr]:
    """FRR on a network of its own, which is gone afterwards."""
    network = Network.create(build(spec), None)
    routed = Frr(network)
    try:
        routed.start()
        yield routed
    finally:
        routed.stop()
        network.down()


def side_by_side(spec: str, failures: int) -> None:
    """Print both; what is asked is that ours are not slower, and smaller."""
    pairs = some_pairs(build(spec), PAIRS)
    network = Network.create(build(spec), None, scheme=SCHEME)
    try:
        found = recovery(network, pairs, failures)
        own_mb = statistics.median(pss_kb(row.pid) for row in network.rows().values()) / 1024
    finally:
        network.down()
    lines = [*found.lines(f"{SCHEME} on {spec}", MOST_MS), Line("  memory of a node", own_mb, "MB")]
    show(f"{failures} silent failures, ours", lines)
    with frr(spec) as theirs:
        their_mb = theirs.memory_mb()
        beside = recovery(theirs.network, pairs, failures)
    lines = [*beside.lines(f"OSPF with BFD on {spec}"), Line("  memory of a node", their_mb, "MB")]
    show(f"{failures} silent failures, FRR's", lines)
    ratios = {
        "median outage": (found.median_ms, beside.median_ms),
        "99th percentile": (found.p99_ms, beside.p99_ms),
        "memory of a node": (own_mb, their_mb),
    }
    show("Ours beside FRR's", [Line(what, ratio(*both), "x", at_most=1) for what, both in ratios.items()])


def ratio(a: float, b: float) -> float:
    return a / b if b else float("inf")


def main() -> None:
    """Print both sides for each network; say so where FRR is missing."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--failures", type=int, default=20, help="links that die, one after the other")
    given.add_argument("--network", action="append", choices=SPECS, help="only this one")
    asked = given.parse_args()
    if missing := [name for name in DAEMONS if not (PROGRAMS / name).exists()]:
        raise SystemExit(f"bench.frr: FRR is missing ({PROGRAMS / missing[0]}): apt-get install frr")
    for spec in asked.network or SPECS[:1]:
        side_by_side(spec, asked.failures)


if __name__ == "__main__":
    main()
