"""Campaigns in the simulator.

Messages are not sealed here: a state machine believes a changed packet as far as it makes sense.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from math import inf
from random import Random

from tests.chaos.damage import Damage, doubtful, reachable
from tests.chaos.faulty_network import CampaignError, FaultyNetwork
from tests.chaos.state_size import excess, sizes
from weft.daemons.core import registry
from weft.daemons.core.contract import FlowRewrite, SourceRewrite
from weft.daemons.routing import route_addresses
from weft.daemons.simulator.packet_walk import PacketWalk
from weft.daemons.simulator.simulator import SWEEP_S, Simulator
from weft.daemons.simulator.wires import Wire
from weft.experiments.engines.routes import PairSet
from weft.topologies import build

BEGIN_S, SETTLE_S = 30.0, 60.0
STEP_S, LONGEST_STEP_S = 0.1, 2.0  # between two checks
# The network may be as predicted, then differ again, when neighbours notice a restart, or when a
# daemon removes the routes of the last one.  More often is a route that flaps.
MOST_TIMES_RIGHT = 3
WIRE = Wire(delay_s=50e-6, jitter_s=20e-6)
MOST_CHOICES = 3  # next hops of a route by which each pair is tried
PAIRS = 20

built = cache(build)


class SimulatedNetwork(FaultyNetwork):
    """A network in the simulator, converged."""

    def __init__(self, spec: str, routing: str, seed: int, pairs: int = PAIRS) -> None:
        super().__init__(built(spec), routing, seed, pairs)
        self.scheme, self.options = registry.scheme(routing)
        self.simulator = Simulator(self.topology, routing, wire=WIRE, random=Random(seed))
        configs = [self.simulator.node(node).config for node in self.routers]
        self.notice_s = max((config.dead + 1) * config.interval_ms / 1000 for config in configs)
        # the scheme learns from packets that leave
        self.probes = bool(self.scheme.needs & {SourceRewrite, FlowRewrite})
        self.known: dict[int, tuple[object, PairSet]] = {}  # by path choice: version and pairs
        self.looping_since: dict[tuple[int, int], float] = {}
        self.fault_s = 0.0  # time of the last fault or repair
        self.settled_s: list[float] = []
        self.converge()
        self.sizes = sizes(self.simulator)

    def now(self) -> float:
        return self.simulator.now

    def wait(self, seconds: float) -> None:
        """Let time pass, and check for loops now and then."""
        end_s = self.now() + seconds
        while (left_s := end_s - self.now()) > 1e-9:
            self.simulator.run_for(min(STEP_S, left_s))
            if left_s > STEP_S / 2:
                self.reached(0)

    def step_clock(self, node: int, seconds: float) -> None:
        self.simulator.step_clock(node, seconds)

    def _link_changed(self, link: int) -> None:
        """Bring `link` into the state of the damage."""
        self.fault_s = self.now()
        deaf = {end for end in self.ends(link) if (link, end) in self.damage.deaf}
        if link not in self.damage.links():
            self.simulator.restore(link)
        elif link in self.damage.down:
            self.simulator.fail(link)
        elif len(deaf) == 2:
            self.simulator.fail(link, silent=True)
        else:
            (sender,) = self.ends(link) - deaf
            self.simulator.fail(link, silent=True, sender=sender)

    def _wire_changed(self, link: int) -> None:
        self.fault_s = self.now()
        properties = self.wires.get(link)
        wire = Wire(**{"delay_s": WIRE.delay_s, **properties}) if properties else None
        self.simulator.alter(link, wire)

    def _power_off(self, node: int) -> None:
        self.fault_s = self.now()
        self.simulator.kill(node)

    def _power_on(self, node: int) -> None:
        self.fault_s = self.now()
        self.simulator.restart(node)

    def _kill_daemon(self, node: int) -> None:
        self.fault_s = self.now()
        self.simulator.stop_daemon(node)

    def _start_daemon(self, node: int) -> None:
        self.fault_s = self.now()
        self.simulator.start_daemon(node)

    def _stall(self, nodes: Iterable[int], seconds: float) -> None:
        self.fault_s = self.now()
        for node in nodes:
            self.simulator.stall(node, seconds)

    def converge(self) -> None:
        """Wait until every daemon has converged."""
        try:
            self.simulator.run_until_converged(within_s=BEGIN_S, every_s=self.notice_s / 8)
        except TimeoutError as error:
            raise CampaignError(f"not converged: {error}") from None

    def choices(self) -> Iterator[Mapping[str, int]]:
        """Yield the arguments of walk() for each choice among the paths of a pair."""
        yield {"choice": 0}
        rule = self.scheme.rule(self.options)
        if rule and rule.hosts:
            for layer in range(rule.hosts["layers"]):
                yield {"first_octet": route_addresses.first_octet(layer)}
        elif not self.topology.server_centric:
            for choice in range(1, MOST_CHOICES):
                yield {"choice": choice}

    def reached(self, number: int) -> PairSet:
        """Return the pairs that reach each other now, by path choice `number`.

        Raises:
            CampaignError: packets loop longer than the scheme allows.
        """
        choice = list(self.choices())[number]
        version = (self.simulator.version(), self.fault_s)
        if number in self.known and self.known[number][0] == version:
            return self.known[number][1]
        pairs = set()
        walks: dict[int, dict[tuple[int, int], PacketWalk]] = {}  # by destination
        for src, dst in self.pairs:
            if self.probes:
                walk = self.simulator.send(src, dst)
            else:
                walk = self.simulator.walk(src, dst, **choice, known=walks.setdefault(dst, {}))
            if not walk.lost:
                pairs.add((src, dst))
            if walk.lost.startswith("loop"):
                self.check_loop((src, dst), walk.lost)
            else:
                self.looping_since.pop((src, dst), None)
        if not (self.probes or self.looping_since):
            self.known[number] = version, pairs
        return pairs

    def check_loop(self, pair: tuple[int, int], place: str) -> None:
        """Raise CampaignError for a loop that outlasts the last fault too long.

        A loop may last while messages are lost.
        """
        since_s = self.looping_since.setdefault(pair, self.now())
        allowed_s = 0.0
        if not self.scheme.loop_free:
            allowed_s = inf if self.wires else 2 * self.notice_s + 1.0
            if any(self.simulator.node(node).inherited for node in self.routers):
                allowed_s += SWEEP_S  # routes of a dead daemon, beside the new ones of others
        if self.now() - max(since_s, self.fault_s) > allowed_s or not allowed_s:
            src, dst = map(self.topology.naming.name, pair)
            raise CampaignError(f"{src} to {dst}: {place} for {self.now() - since_s:.3f} s")

    def settle(self, moment: str) -> None:
        """Run until exactly the predicted pairs reach each other, and check that it stays so."""
        begin_s = self.now()
        predicted = set(self.pairs)
        if self.damage != Damage():
            predicted = reachable(self.topology, self.routing, self.damage, self.pairs)
        for _ in range(MOST_TIMES_RIGHT):
            self.wait_for(predicted, moment, begin_s)
            settled_s = self.now() - begin_s
            self.simulator.run_for(2 * self.notice_s)
            if not (difference := self.difference(predicted)):
                self.settled_s.append(settled_s)
                return
        raise CampaignError(f"{moment}, after it was right {MOST_TIMES_RIGHT} times: {difference}")

    def wait_for(self, predicted: PairSet, moment: str, begin_s: float) -> None:
        """Run until the pairs are as `predicted`, for SETTLE_S since `begin_s` at most."""
        step_s = STEP_S
        while difference := self.difference(predicted):
            if self.now() > begin_s + SETTLE_S:
                raise CampaignError(f"{moment}, after {SETTLE_S:g} s: {difference}")
            self.simulator.run_for(step_s)
            step_s = min(step_s * 1.5, 0.3 if self.probes else LONGEST_STEP_S)

    def difference(self, predicted: PairSet) -> str:
        """Return in words how the pairs differ from the predicted ones, by any path choice."""
        ignored = doubtful(self.topology, self.damage)
        for number, _ in enumerate(self.choices()):
            pairs = self.reached(number)
            for different, what in (
                (predicted - pairs, "lost"),
                (pairs - predicted - ignored, "reached against the prediction"),
            ):
                if different:
                    return f"{len(different)} pairs {what}, such as {self.example(different)}"
        return ""

    def example(self, pairs: PairSet) -> str:
        """Return the first of `pairs` and the path of its packet."""
        src, dst = min(pairs)
        names = self.topology.naming.name
        walk = self.simulator.walk(src, dst)
        path = " ".join(map(names, walk.path))
        return f"{names(src)} to {names(dst)} ({'; '.join(filter(None, [path, walk.lost]))})"

    def check_recovery(self) -> None:
        self.converge()
        if text := excess(self.sizes, sizes(self.simulator)):
            raise CampaignError(text)
