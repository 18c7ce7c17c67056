"""A campaign on wires in memory, in simulated time, and what is found wrong.

What is looked at:

    crash      a state machine raises
    loop       packets go round for longer than the scheme says that they may
    unlike     when daemons have had SETTLE_S after the last event, or stay so, other pairs reach
               each other than are predicted of what is broken; or, when all is whole again, not all
               do
    converged  a daemon has not converged, when all is whole again
    state      it keeps far more than it did before the campaign

Messages are not sealed here: a packet that is changed on its way is believed as far as it makes
sense.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import inf
from random import Random
from typing import TYPE_CHECKING

from weft.daemons.core import registry
from weft.daemons.core.capabilities import FlowRewrite, SourceRewrite
from weft.daemons.routing import first_octets
from weft.daemons.simulator.packet_walk import PacketWalk
from weft.daemons.simulator.simulator import SWEEP_S, Simulator
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
from weft.experiments.chaos.state_size import sizes, too_large
from weft.experiments.engines.routes import PairSet
from weft.topologies import build

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

BEGIN_S, SETTLE_S, LOOK_S, LONGEST_LOOK_S = 30.0, 60.0, 0.1, 2.0
MOST_LOOKS = 40  # during the events of a campaign
# so often all may be as predicted, and then otherwise; more than that is routes that flap
MOST_TIMES_RIGHT = 3
WIRE = Wire(delay_s=50e-6, jitter_s=20e-6)
MOST_WAYS = 3  # by as many of a route's hops each pair is tried


class Failed(Exception):
    """Something is wrong; `finding` says what."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.finding = Finding(kind, what)


@lru_cache(maxsize=32)
def built(spec: str) -> Topology:
    """topologies.build(), once for each specification."""
    return build(spec)


class SimulatedCampaign:
    """A network to which the events of `campaign` happen."""

    def __init__(self, campaign: Campaign) -> None:
        self.campaign, self.topology = campaign, built(campaign.topology)
        self.scheme, self.options = registry.scheme(campaign.routing)
        self.simulator = Simulator(
            self.topology, campaign.routing, wire=WIRE, random=Random(campaign.seed)
        )
        pairs = sorted(all_pairs(self.topology))
        few = campaign.pairs
        self.pairs = sorted(Random(campaign.seed).sample(pairs, few)) if len(pairs) > few else pairs
        self.damage = Damage()
        self.wires: dict[int, dict[str, float]] = {}
        configs = [self.simulator.node(node).config for node in self.routers()]
        self.notice_s = max((config.dead + 1) * config.interval_ms / 1000 for config in configs)
        # whether it learns from packets that leave
        self.asks = bool(self.scheme.needs & {SourceRewrite, FlowRewrite})
        # by way, what was found last, without a loop, and when
        self.looked: dict[int, tuple[object, PairSet]] = {}
        self.looping_since: dict[tuple[int, int], float] = {}
        self.last_s = 0.0  # when something happened last
        self.size: Mapping[str, int] = {}
        # from the last event until all was as predicted; then from the last mending
        self.settled_s: list[float] = []

    def routers(self) -> list[int]:
        return list(self.simulator._nodes)

    def run(self) -> list[Finding]:
        """Let everything happen; the first thing that is wrong, or nothing."""
        try:
            self.converge()
            self.size = sizes(self.simulator)
            begin_s = self.simulator.now
            for event in self.campaign.events:
                self.until(begin_s + event.at_s)
                self.happen(event)
            self.until(begin_s + self.campaign.ends_s)
            self.calm()
            self.settle(
                reachable(self.topology, self.campaign.routing, self.damage, self.pairs),
                "what is broken",
            )
            self.heal()
            self.settle(all_pairs(self.topology), "all being whole again")
            self.converge()
            if larger := too_large(self.size, sizes(self.simulator)):
                raise Failed("state", larger)
        except Failed as failed:
            return [failed.finding]
        except Exception as error:
            return [Finding("crash", f"{type(error).__name__}: {error}")]
        return []

    # -- events

    def happen(self, event: FaultEvent) -> None:
        """Let `event` happen."""
        self.last_s = self.simulator.now
        self.damage.add(event, self.topology)
        if event.kind in ALTERED or event.kind == "clear":
            self._alter(event)
        elif event.kind in ("down", "silent", "deaf", "up"):
            self._link(event)
        else:
            self._node(event)

    def _link(self, event: FaultEvent) -> None:
        link = self.topology.link(event.where)
        match event.kind:
            case "up":
                self.simulator.restore(link)
            case "deaf":
                hears_nothing = self.topology.naming.node(event.value)
                (sender,) = set(self.topology.links[link, [0, 2]].tolist()) - {hears_nothing}
                self.simulator.fail(link, silent=True, sender=sender)
            case _:
                self.simulator.fail(link, silent=event.kind == "silent")

    def _alter(self, event: FaultEvent) -> None:
        every = range(len(self.topology.links))
        for link in every if event.where == ALL else [self.topology.link(event.where)]:
            if event.kind == "clear":
                self.wires.pop(link, None)
            else:
                self.wires.setdefault(link, {}).update(alteration(event))
            self.simulator.alter(
                link,
                Wire(**{"delay_s": WIRE.delay_s, **given})
                if (given := self.wires.get(link))
                else None,
            )

    def _node(self, event: FaultEvent) -> None:
        simulator = self.simulator
        if event.kind == "pause":
            for node in self.routers():
                simulator.stall(node, event.number / 1000)
            return
        node = self.topology.naming.node(event.where)
        if node not in simulator._nodes:
            raise ValueError(f"{event.where} runs no daemon")
        match event.kind:
            case "die":
                simulator.kill(node)
            case "live":
                simulator.restart(node)
            case "kill":
                simulator.stop_daemon(node)
            case "start":
                if simulator.node(node).powered:
                    simulator.start_daemon(node)
            case "stop":
                simulator.stall(node, event.number / 1000)
            case "clock":
                simulator.step_clock(node, event.number / 1000)

    def calm(self) -> None:
        """Packets arrive as they should."""
        for link in self.wires:
            self.simulator.alter(link, None)
        self.wires.clear()
        self.last_s = self.simulator.now

    def heal(self) -> None:
        """Mend what is broken."""
        for link in sorted(self.damage.links()):
            self.simulator.restore(link)
        for node in sorted(self.damage.dead):
            self.simulator.restart(node)
        for node in sorted(self.damage.headless):
            self.simulator.start_daemon(node)
        self.damage = Damage()
        self.last_s = self.simulator.now

    # -- looking

    def converge(self) -> None:
        try:
            self.simulator.run_until_converged(within_s=BEGIN_S, every_s=self.notice_s / 8)
        except TimeoutError as error:
            raise Failed("converged", str(error)) from None

    def until(self, time_s: float) -> None:
        """Let time pass, and look every now and then."""
        step_s = max(LOOK_S, (self.campaign.ends_s or 1.0) / MOST_LOOKS)
        while (left_s := time_s - self.simulator.now) > 1e-9:
            self.simulator.run_for(min(step_s, left_s))
            if left_s > step_s / 2:
                self.look(0)

    def ways(self) -> Iterator[Mapping[str, int]]:
        """What to tell walk() for each way in which packets of one pair may go."""
        yield {"choice": 0}
        rule = self.scheme.rule(self.options)
        if rule and rule.hosts:
            yield from (
                {"first_octet": first_octets.first_octet(layer)}
                for layer in range(rule.hosts["layers"])
            )
        elif not self.topology.server_centric:
            yield from ({"choice": choice} for choice in range(1, MOST_WAYS))

    def look(self, way: int) -> PairSet:
        """Who reaches whom now, by one of the ways, if nothing goes round that must not."""
        told, version = list(self.ways())[way], (self.simulator.version(), self.last_s)
        if self.looked.get(way, ("", ()))[0] == version:
            return self.looked[way][1]
        reached = set()
        known: dict[int, dict[tuple[int, int], PacketWalk]] = {}  # by destination
        for src, dst in self.pairs:
            walk = (
                self.simulator.send(src, dst)
                if self.asks
                else self.simulator.walk(src, dst, **told, known=known.setdefault(dst, {}))
            )
            if not walk.lost:
                reached.add((src, dst))
            if walk.lost.startswith("loop"):
                self._loops((src, dst), walk.lost)
            elif self.looping_since:
                self.looping_since.pop((src, dst), None)
        if not (self.asks or self.looping_since):
            self.looked[way] = version, reached
        return reached

    def _loops(self, pair: tuple[int, int], where: str) -> None:
        """Packets of `pair` go round; that must be over soon after what happened last, unless
        messages are lost.
        """
        since_s = self.looping_since.setdefault(pair, self.simulator.now)
        bound_s = 0.0 if self.scheme.loop_free else inf if self.wires else 2 * self.notice_s + 1.0
        if any(self.simulator.node(node).inherited for node in self.routers()):
            # what a daemon before set, beside what others know by now
            bound_s += SWEEP_S if bound_s else 0.0
        if self.simulator.now - max(since_s, self.last_s) > bound_s or not bound_s:
            src, dst = map(self.topology.naming.name, pair)
            raise Failed(
                "loop", f"{src} to {dst}: {where}, since {self.simulator.now - since_s:.3f} s"
            )

    def settle(self, predicted: PairSet, why: str) -> None:
        """Run until exactly the pairs that are `predicted` reach each other, by all ways, and see
        that it stays so.

        It may come to be otherwise a few times: when others notice a restart and damp the node's
        links, or when a daemon takes away what the one before it had set.
        """
        begin_s = self.simulator.now
        unsure = doubtful(self.topology, self.damage)
        wanted = {pair for pair in self.pairs if pair in predicted}
        for _ in range(MOST_TIMES_RIGHT):
            self._until_like(wanted, unsure, why, begin_s)
            settled_s = self.simulator.now - begin_s
            self.simulator.run_for(2 * self.notice_s)
            if not (wrong := self._unlike(wanted, unsure)):
                self.settled_s.append(settled_s)
                return
        raise Failed("unlike", f"{why}, after it was right {MOST_TIMES_RIGHT} times: {wrong}")

    def _until_like(self, wanted: PairSet, unsure: PairSet, why: str, begin_s: float) -> None:
        """Run until what is reached is what is wanted, for SETTLE_S since `begin_s` at the most."""
        step_s = LOOK_S
        while wrong := self._unlike(wanted, unsure):
            if self.simulator.now > begin_s + SETTLE_S:
                raise Failed("unlike", f"{why}, after {SETTLE_S:g} s: {wrong}")
            self.simulator.run_for(step_s)
            step_s = min(step_s * 1.5, 0.3 if self.asks else LONGEST_LOOK_S)

    def _unlike(self, wanted: PairSet, unsure: PairSet) -> str:
        """How what is reached differs from what is wanted, by the first way in which it does."""
        for way, _ in enumerate(self.ways()):
            reached = self.look(way)
            lost, gained = wanted - reached, reached - wanted - unsure
            if lost or gained:
                return self._told(lost, "lost") or self._told(
                    gained, "reached against the prediction"
                )
        return ""

    def _told(self, pairs: PairSet, what: str) -> str:
        if not pairs:
            return ""
        src, dst = min(pairs)
        names = self.topology.naming.name
        walk = self.simulator.walk(src, dst)
        went = "; ".join(filter(None, [" ".join(map(names, walk.path)), walk.lost]))
        return f"{len(pairs)} pairs {what}, such as {names(src)} to {names(dst)} ({went})"


def simulate(campaign: Campaign) -> Sequence[Finding]:
    """What is wrong after `campaign` in the simulator, nothing if all is well."""
    return SimulatedCampaign(campaign).run()
