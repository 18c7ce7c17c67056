"""Campaigns on a network that is up in the kernel, by the real clock or a virtual one.

All campaigns may share one network: each leaves it whole unless it fails.  Only under a virtual
clock is there a clock to step that is not the machine's.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from heapq import heappop, heappush
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos.altered_links import AlteredLinks
from tests.chaos.damage import doubtful, reachable
from tests.chaos.faulty_network import CampaignError, FaultyNetwork
from weft.daemons.simulator.wires import Wire
from weft.experiments.engines import reachability
from weft.experiments.engines.routes import both_ways
from weft.testbed.data_plane.data_plane import DataPlane, program_of
from weft.testbed.linux import clock, fib, netns
from weft.testbed.node_daemon import control, daemon_files

if TYPE_CHECKING:
    from weft.testbed.mininet.net import Net

SETTLE_S, CONVERGE_S = 45.0, 60.0
MOST_GROWTH_BYTES = 10_000_000
PAIRS = 60


def step_wall(by_s: float) -> None:
    """Set this machine's wall clock on or back."""
    time.clock_settime(time.CLOCK_REALTIME, clock.wall() + by_s)


class KernelNetwork(FaultyNetwork):
    """The running network `net` under one campaign.

    broken: of each broken link, whether it lost its carrier, and its deaf ends.
    stalls: end of each stall, and its process.
    recovered: the campaign is over, and left the network whole.
    """

    recovered = False

    def __init__(self, net: Net, seed: int, pairs: int = PAIRS) -> None:
        super().__init__(net.topology, net.routing, seed, pairs)
        self.net = net
        self.sets_clocks = clock.is_virtual()
        self.directory = net.identity.directory
        self.links = AlteredLinks(net.network, self.random)
        self.broken: dict[int, tuple[bool, frozenset[int]]] = {}
        self.stalls: list[tuple[float, int]] = []
        self.stepped_s = 0.0
        self.memory = self.memory_bytes()

    def now(self) -> float:
        return clock.monotonic()

    def wait(self, seconds: float) -> None:
        """Let time pass, and let stalled daemons go on when their time is over."""
        end_s = self.now() + seconds
        while self.stalls and self.stalls[0][0] <= end_s:
            resume_s, _ = self.stalls[0]
            clock.sleep(max(0.0, resume_s - self.now()))
            self.resume(resume_s)
        clock.sleep(max(0.0, end_s - self.now()))

    def resume(self, time_s: float) -> None:
        """Let the daemons run whose stalls end by `time_s`."""
        while self.stalls and self.stalls[0][0] <= time_s:
            _, pid = heappop(self.stalls)
            if not any(stalled == pid for _, stalled in self.stalls):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def step_clock(self, node: int, seconds: float) -> None:
        """Step the virtual clock, which all nodes share."""
        step_wall(seconds)
        self.stepped_s += seconds

    def close(self) -> None:
        self.resume(self.now() + 1e9)
        if self.stepped_s:
            step_wall(-self.stepped_s)
        self.links.close()

    def _stall(self, nodes: Iterable[int], seconds: float) -> None:
        pids = self.pids()
        for node in nodes:
            pid = pids.get(self.topology.naming.name(node))
            with suppress(ProcessLookupError):
                if pid:
                    os.kill(pid, signal.SIGSTOP)
                    heappush(self.stalls, (self.now() + seconds, pid))

    def _wire_changed(self, link: int) -> None:
        # altering all links takes seconds, and a daemon that does not run for five is replaced
        self.resume(self.now())
        properties = self.wires.get(link)
        wire = Wire(**{"delay_s": 0.0, **properties}) if properties else None
        self.links.alter(link, wire)

    def _link_changed(self, link: int) -> None:
        """Bring `link` into the state of the damage; that of a dead node is silent."""
        ends = self.ends(link)
        silent = bool(ends & self.damage.dead)
        deaf = frozenset(end for end in ends if silent or (link, end) in self.damage.deaf)
        state = (link in self.damage.down, deaf)
        if state == self.broken.get(link, (False, frozenset())):
            return
        name = self.topology.link_name(link)
        self.net.restore(name)
        for end in deaf:
            self.net.fail(name, silent=True, only_to=self.topology.naming.name(end))
        if state[0]:
            self.net.fail(name)
        self.broken[link] = state

    def _links_of(self, node: int) -> None:
        for *_, link in self.topology.ports(node):
            self._link_changed(link)

    def _power_off(self, node: int) -> None:
        self._kill_daemon(node)
        self.damage.dead.add(node)
        self._links_of(node)

    def _power_on(self, node: int) -> None:
        self._forget_routes(node)
        self._links_of(node)  # before the daemon sends
        self._start_daemon(node)

    def _kill_daemon(self, node: int) -> None:
        with suppress(ValueError):  # there is none: check_recovery() reports its death
            control.kill(self.directory, self.topology.naming.name(node))

    def _start_daemon(self, node: int) -> None:
        control.start(self.directory, self.topology.naming.name(node))

    def _forget_routes(self, node: int) -> None:
        network = self.net.network
        with network.at(node) as socket:
            socket.request([fib.removal_message(prefix) for prefix in fib.routes(socket)])
        if program_of(network) is not None:
            with DataPlane.open(network) as plane:
                plane.groups[node].replace({})

    def pids(self) -> dict[str, int]:
        """Return the process of each running daemon, by the name of its node."""
        names = self.net.network.plan.names
        pids = {name: daemon_files.holder(self.directory, name) for name in names}
        return {name: pid for name, pid in pids.items() if pid}

    def settle(self, moment: str) -> None:
        """Ping until exactly the predicted pairs answer."""
        ignored = doubtful(self.topology, self.damage)
        pairs = [pair for pair in self.pairs if pair not in ignored]
        directions = {*pairs, *((dst, src) for src, dst in pairs)}
        connected = reachable(self.topology, self.routing, self.damage, directions)
        predicted = both_ways(connected) & {*pairs}
        reached = reachability.wait_for_pings(self.net, pairs, predicted, timeout_s=SETTLE_S)
        names = self.topology.naming.name
        for different, what in (
            (predicted - reached, "lost"),
            (reached - predicted, "reached against the prediction"),
        ):
            if different:
                example = " to ".join(map(names, min(different)))
                text = f"{len(different)} pairs {what}, such as {example}"
                raise CampaignError(f"{moment}, after {SETTLE_S:g} s: {text}")

    def check_recovery(self) -> None:
        try:
            self.net.wait_until_converged(CONVERGE_S)
        except TimeoutError as error:
            raise CampaignError(f"not converged: {error}") from None
        for node, row in self.net.network.rows().items():
            if row.deaths or row.packets_failed:
                what = f"{row.deaths} deaths, {row.packets_failed} packets that raised an exception"
                log = self.directory / "log"
                raise CampaignError(f"{self.topology.naming.name(node)}: {what}; see {log}")
        before = self.expired_packets()
        reachability.pinged(self.net)
        if (count := self.expired_packets() - before) > 0:
            raise CampaignError(f"loop: {count} packets ran out of hops after all repairs")
        most = max(self.memory.values()) + MOST_GROWTH_BYTES
        for name, size in self.memory_bytes().items():
            if size > most:
                raise CampaignError(f"memory of {name} is {size} bytes, above {most}")
        self.recovered = True

    def expired_packets(self) -> int:
        """Return the packets that ran out of hops, in all namespaces."""
        return sum(time_exceeded(self.net.netns(node)) for node in self.routers)

    def memory_bytes(self) -> Mapping[str, int]:
        """Return the resident memory of each daemon, by the name of its node."""
        page_bytes = resource.getpagesize()
        sizes = {}
        for name, pid in self.pids().items():
            with suppress(FileNotFoundError, ProcessLookupError):
                pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
                sizes[name] = int(pages) * page_bytes
        return sizes


def time_exceeded(space: int) -> int:
    """Return the "time exceeded" messages that the namespace `space` sent."""
    with netns.inside(space):
        lines = Path("/proc/thread-self/net/snmp").read_text(encoding="ascii").splitlines()
    names, values = (line.split() for line in lines if line.startswith("Icmp:"))
    return int(dict(zip(names, values, strict=True))["OutTimeExcds"])
