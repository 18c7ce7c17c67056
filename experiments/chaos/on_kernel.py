"""A campaign on a network that is up in the kernel, by the real clock or a virtual one, and what is
found wrong.

What is looked at:

    crash      a daemon has died unasked, or has dropped a packet for which it raised
    loop       packets still run out of hops when all is as predicted
    unlike     when daemons have had SETTLE_S after the last event, other pairs ping than are
               predicted of what is broken; or, when all is whole again, not all do
    converged  a daemon has not converged, when all is whole again
    state      its memory has grown by more than MOST_GROWTH_BYTES

What a clock is set by, it is set back by in the end.  It is the machine's: only under a virtual
clock is there one of its own.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from weft.daemons.core.node_config import routers
from weft.daemons.simulator.wires import Wire
from weft.experiments.chaos.campaign import (
    ALL,
    ALTERED,
    Campaign,
    Damage,
    FaultEvent,
    Finding,
    alteration,
)
from weft.experiments.chaos.prediction import all_pairs, doubtful, reachable
from weft.experiments.engines import reachability
from weft.experiments.engines.predicted_paths import both_ways
from weft.experiments.engines.routes import PairSet
from weft.testbed.data_plane.data_plane import DataPlane, program_of
from weft.testbed.linux import clock, fib, netns
from weft.testbed.network.altered_links import AlteredLinks
from weft.testbed.node_daemon import control

if TYPE_CHECKING:
    from weft.testbed.mininet.net import Net

SETTLE_S, CONVERGE_S = 45.0, 60.0
MOST_GROWTH_BYTES = 10_000_000
MOST_PINGED = 60  # pairs of servers


class KernelCampaigns:
    """Campaigns on `net`, one after the other, each of which leaves it whole unless it fails."""

    def __init__(self, net: Net, routing: str) -> None:
        self.net, self.topology, self.routing = net, net.topology, routing
        self.damage = Damage()
        # links as they are: no carrier, and who is deaf
        self.broken: dict[int, tuple[bool, frozenset[int]]] = {}
        self.stopped: list[tuple[float, int]] = []  # until when, and which process
        self.stepped_s = 0.0
        self.settled_s: list[float] = []
        self.memory = self._memory()

    def run(self, campaign: Campaign) -> list[Finding]:
        """Let everything happen; what is wrong then."""
        self.settled_s = []
        self.random = Random(campaign.seed)
        pairs = sorted(all_pairs(self.topology))
        few = min(campaign.pairs, MOST_PINGED)
        chosen = sorted(self.random.sample(pairs, few)) if len(pairs) > few else pairs
        self.links = AlteredLinks(self.net.network, self.random)
        self.wires: dict[int, dict[str, float]] = {}
        try:
            begin_s = clock.monotonic()
            for event in campaign.events:
                self._until(begin_s + event.at_s)
                self._happen(event)
            self._until(begin_s + campaign.ends_s)
        finally:
            self._resume(clock.monotonic() + 1e9)
            self._set_clock(-self.stepped_s)
            self.links.close()
        found = self._settle(chosen, "what is broken")
        self._heal()
        return found or self._settle(chosen, "all being whole again") or self._look()

    # -- events

    def _until(self, time_s: float) -> None:
        """Let time pass, and stopped daemons run on when they may."""
        while self.stopped and self.stopped[0][0] <= time_s:
            at_s, _ = self.stopped[0]
            clock.sleep(max(0.0, at_s - clock.monotonic()))
            self._resume(at_s)
        clock.sleep(max(0.0, time_s - clock.monotonic()))

    def _resume(self, until_s: float) -> None:
        while self.stopped and self.stopped[0][0] <= until_s:
            _, pid = heappop(self.stopped)
            if not any(each == pid for _, each in self.stopped):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def _stop(self, pids: Sequence[int], for_s: float) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                heappush(self.stopped, (clock.monotonic() + for_s, pid))

    def _happen(self, event: FaultEvent) -> None:
        before = self.damage.copy()
        self.damage.add(event, self.topology)
        if event.kind in ALTERED or event.kind == "clear":
            self._alter(event)
        elif event.kind == "pause":
            self._stop(list(self._pids().values()), event.number / 1000)
        elif event.kind == "stop":
            self._stop(
                [pid for name, pid in self._pids().items() if name == event.where],
                event.number / 1000,
            )
        elif event.kind == "clock":
            self._set_clock(event.number / 1000)
        elif event.kind in ("die", "live", "kill", "start"):
            self._node(event, before)
        self._break_links()

    def _alter(self, event: FaultEvent) -> None:
        links = (
            range(len(self.topology.links))
            if event.where == ALL
            else [self.topology.link(event.where)]
        )
        for link in links:
            # for all links it takes seconds, and who is stopped for five is ended
            self._resume(clock.monotonic())
            if event.kind == "clear":
                self.wires.pop(link, None)
            else:
                self.wires.setdefault(link, {}).update(alteration(event))
            given = self.wires.get(link)
            self.links.alter(link, Wire(**{"delay_s": 0.0, **given}) if given else None)

    def _node(self, event: FaultEvent, before: Damage) -> None:
        node, name = self.topology.naming.node(event.where), event.where
        had_daemon = node not in before.dead | before.headless
        if event.kind in ("die", "kill") and had_daemon:
            self._kill(name)
        elif event.kind == "live":
            if had_daemon:
                self._kill(name)
            self._forget_routes(node)
            self._break_links()  # before its daemon speaks
            control.start(self.net.identity.directory, name)
        elif event.kind == "start" and node not in before.dead:
            if had_daemon:
                self._kill(name)
            control.start(self.net.identity.directory, name)

    def _kill(self, name: str) -> None:
        with suppress(ValueError):  # it has none: it died, which deaths tell
            control.kill(self.net.identity.directory, name)

    def _forget_routes(self, node: int) -> None:
        network = self.net.network
        with network.at(node) as socket:
            socket.request([fib.removal_message(prefix) for prefix in fib.routes(socket)])
        if program_of(network) is not None:
            with DataPlane.open(network) as plane:
                plane.groups[node].replace({})

    def _break_links(self) -> None:
        """Let every link be as the damage says; one of a node without power is silent."""
        for link, (a, _, b, _) in enumerate(self.topology.links.tolist()):
            deaf = {
                end
                for end in (a, b)
                if (link, end) in self.damage.deaf or {a, b} & self.damage.dead
            }
            wanted = link in self.damage.down, frozenset(deaf)
            if wanted == self.broken.get(link, (False, frozenset())):
                continue
            name = self.topology.link_name(link)
            self.net.restore(name)
            for end in deaf:
                self.net.fail(name, silent=True, only_to=self.topology.naming.name(end))
            if wanted[0]:
                self.net.fail(name)
            self.broken[link] = wanted

    def _set_clock(self, by_s: float) -> None:
        if by_s:
            clock.step_wall(by_s)
            self.stepped_s += by_s

    def _heal(self) -> None:
        headless = self.damage.dead | self.damage.headless
        for node in sorted(self.damage.dead):
            self._forget_routes(node)
        self.damage = Damage()
        self._break_links()
        for node in sorted(headless):
            control.start(self.net.identity.directory, self.topology.naming.name(node))

    # -- looking

    def _pids(self) -> dict[str, int]:
        told = control.processes(self.net.identity.directory)
        return {name: each["pid"] for name, each in told.items() if each["pid"]}

    def _settle(self, chosen: Sequence[tuple[int, int]], why: str) -> list[Finding]:
        begin_s = clock.monotonic()
        unsure = doubtful(self.topology, self.damage)
        asked = [pair for pair in chosen if pair not in unsure]
        both = {*asked, *((dst, src) for src, dst in asked)}
        expected = both_ways(reachable(self.topology, self.routing, self.damage, both)) & {*asked}
        reached = reachability.wait_for_pings(self.net, asked, expected, timeout_s=SETTLE_S)
        if reached != expected:
            return [
                Finding("unlike", f"{why}, after {SETTLE_S:g} s: {self._told(expected, reached)}")
            ]
        self.settled_s.append(clock.monotonic() - begin_s)
        return []

    def _told(self, expected: PairSet, reached: PairSet) -> str:
        names = self.topology.naming.name
        for pairs, what in (
            (expected - reached, "lost"),
            (reached - expected, "reached against the prediction"),
        ):
            if pairs:
                return f"{len(pairs)} pairs {what}, such as {' to '.join(map(names, min(pairs)))}"
        return ""

    def _look(self) -> list[Finding]:
        """What else is wrong, when all is whole again."""
        name = self.topology.naming.name
        try:
            self.net.wait_until_converged(CONVERGE_S)
        except TimeoutError as error:
            return [Finding("converged", str(error))]
        for node, row in self.net.network.rows().items():
            if row.deaths or row.packets_failed:
                what = f"{row.deaths} deaths, {row.packets_failed} packets over which it raised"
                return [
                    Finding(
                        "crash", f"{name(node)}: {what}; see {self.net.identity.directory / 'log'}"
                    )
                ]
        before = self._hops_exceeded()
        reachability.pinged(self.net)
        if (more := self._hops_exceeded() - before) > 0:
            return [Finding("loop", f"{more} packets ran out of hops when all was whole again")]
        for each, size in self._memory().items():
            if size > max(self.memory.values()) + MOST_GROWTH_BYTES:
                return [
                    Finding(
                        "state",
                        f"{each} has {size} bytes, and none had more than "
                        f"{max(self.memory.values())}",
                    )
                ]
        return []

    def _hops_exceeded(self) -> int:
        """Packets whose hops have run out, in all namespaces."""
        found = 0
        for node in routers(self.topology):
            found += time_exceeded(self.net.netns(node))
        return found

    def _memory(self) -> Mapping[str, int]:
        """Bytes of each daemon's process that are in memory."""
        page, found = resource.getpagesize(), {}
        for name, pid in self._pids().items():
            with suppress(FileNotFoundError, ProcessLookupError):
                found[name] = (
                    int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * page
                )
        return found


def time_exceeded(space: int) -> int:
    """ICMP messages of the namespace `space` that a packet's hops ran out."""
    with netns.inside(space):
        lines = Path("/proc/thread-self/net/snmp").read_text(encoding="ascii").splitlines()
    names, values = (line.split() for line in lines if line.startswith("Icmp:"))
    return int(dict(zip(names, values, strict=True))["OutTimeExcds"])
