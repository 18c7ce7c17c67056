"""Campaigns at random: what happens, where and when, by seed.

Each step is one of PATTERNS, an event or a few that belong together; how often each comes is its
weight there.  Never is more than a third of the links or of the routers broken at a time, so that
there is something left to be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from random import Random
from typing import TYPE_CHECKING

from weft.daemons.core.node_config import routers
from weft.experiments.chaos.campaign import (
    ALL,
    KINDS,
    MOST_PAIRS,
    NOWHERE,
    PERCENT,
    Campaign,
    Damage,
    FaultEvent,
    plain,
)
from weft.topologies import build

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

GAPS_S = (0.0, 0.0, 0.002, 0.03, 0.15, 0.5)  # between two steps
FLAPS_S = (0.02, 0.1, 0.25, 0.4)
VALUES = {
    "lose": (5, 20, 60),
    "double": (20, 100),
    "corrupt": (0.2, 5, 30),
    "replay": (5, 50),
    "slow": (1, 20, 120),
    "jitter": (1, 20, 120),
    "stop": (20, 150, 400, 1500),
    "pause": (20, 150, 400, 1500),
    "clock": (-3_600_000, -200, 200, 3_600_000),
}
FaultStep = tuple[float, str, str, str]  # seconds since the step before, kind, where, value


class Draw:
    """The steps of one campaign on `topology`, of the kinds that are asked for, as `random`
    says.
    """

    def __init__(self, topology: Topology, random: Random, kinds: Collection[str]) -> None:
        self.topology, self.random = topology, random
        self.kinds = frozenset(kinds)
        self.damage = Damage()
        self.altered: set[str] = set()
        self.at_s = 0.0
        self.events: list[FaultEvent] = []
        self.routers = routers(topology)
        self.patterns = [
            pattern
            for pattern, weight, needs in PATTERNS
            if needs <= self.kinds
            for _ in range(weight)
        ]

    def steps(self, count: int) -> tuple[FaultEvent, ...]:
        """Draw so many."""
        for _ in range(count if self.patterns else 0):
            self.at_s += self.random.choice(GAPS_S)
            for later_s, kind, where, value in self.random.choice(self.patterns)(self):
                self.at_s = round(self.at_s + later_s, 6)
                event = FaultEvent(self.at_s, kind, where, value)
                self.events.append(event)
                self.damage.add(event, self.topology)
        return tuple(self.events)

    def link(self) -> int:
        return self.random.randrange(len(self.topology.links))

    def name(self, node: int) -> str:
        return self.topology.naming.name(node)

    def value(self, kind: str) -> str:
        return plain(self.random.choice(VALUES[kind]))

    def may_break_link(self) -> bool:
        return 3 * len(self.damage.links()) < len(self.topology.links)

    def broken_nodes(self) -> list[int]:
        return sorted(self.damage.dead | self.damage.headless)

    def may_break(self, nodes: Iterable[int]) -> bool:
        return 3 * len({*self.broken_nodes(), *nodes}) <= len(self.routers)

    def healthy_node(self) -> int:
        return self.random.choice(
            [node for node in self.routers if node not in self.broken_nodes()]
        )


def break_link(draw: Draw) -> Iterator[FaultStep]:
    """A link fails, in one way or another."""
    if draw.may_break_link():
        link = draw.link()
        kind = draw.random.choice(
            [kind for kind in ("down", "silent", "deaf") if kind in draw.kinds]
        )
        end = draw.name(int(draw.random.choice(draw.topology.links[link, [0, 2]].tolist())))
        yield 0.0, kind, draw.topology.link_name(link), end if kind == "deaf" else ""


def mend_link(draw: Draw) -> Iterator[FaultStep]:
    """One that has failed works again."""
    if links := sorted(draw.damage.links()):
        yield 0.0, "up", draw.topology.link_name(draw.random.choice(links)), ""


def flap(draw: Draw) -> Iterator[FaultStep]:
    """A link fails and works a few times in a row."""
    name, kind = draw.topology.link_name(draw.link()), draw.random.choice(["down", "silent"])
    period_s = draw.random.choice(FLAPS_S)
    for _ in range(draw.random.randint(2, 4)):
        yield period_s, kind, name, ""
        yield period_s, "up", name, ""


def alter(draw: Draw) -> Iterator[FaultStep]:
    """Packets of a link, or of all, are lost, late, doubled, changed or said again."""
    kind = draw.random.choice(sorted(ALTERING & draw.kinds))
    where = ALL if draw.random.random() < 0.3 else draw.topology.link_name(draw.link())
    draw.altered.add(where)
    yield 0.0, kind, where, draw.value(kind)


def clear(draw: Draw) -> Iterator[FaultStep]:
    """They arrive as they should again."""
    if draw.altered:
        where = draw.random.choice(sorted(draw.altered))
        draw.altered.discard(where)
        yield 0.0, "clear", where, ""


def die(draw: Draw) -> Iterator[FaultStep]:
    """A router loses its power; neighbours may see its links go."""
    node = draw.healthy_node()
    if draw.may_break([node]):
        yield from without_power(draw, node, announced=draw.random.random() < 0.4)


def without_power(draw: Draw, node: int, *, announced: bool) -> Iterator[FaultStep]:
    """The steps of a node that loses its power.

    Announced: its neighbours see the carriers of its links go.
    """
    yield 0.0, "die", draw.name(node), ""
    if announced and "down" in draw.kinds:
        for *_, link in draw.topology.ports(node):
            yield 0.0, "down", draw.topology.link_name(link), ""


def rack(draw: Draw) -> Iterator[FaultStep]:
    """A switch dies with all that is behind it."""
    topology = draw.topology
    switch = draw.random.choice(
        sorted({b for _, _, b, _ in topology.links[topology.level == 0].tolist()})
    )
    behind = [peer for _, peer, _, _ in topology.ports(switch) if peer < topology.servers]
    members = behind if topology.server_centric else [switch]
    if draw.may_break(members) and not set(members) & set(draw.broken_nodes()):
        for node in members:
            yield from without_power(draw, node, announced=False)
        for *_, link in topology.ports(switch):
            yield 0.0, "down", topology.link_name(link), ""


def come_back(draw: Draw) -> Iterator[FaultStep]:
    """A router that has died is there again, and its links, as far as the other end is."""
    if draw.damage.dead:
        node = draw.random.choice(sorted(draw.damage.dead))
        for *_, link in draw.topology.ports(node):
            if link in draw.damage.links():
                yield 0.0, "up", draw.topology.link_name(link), ""
        yield 0.0, "live", draw.name(node), ""


def reboot(draw: Draw) -> Iterator[FaultStep]:
    """A router starts again with empty tables, at once or a little later."""
    node = draw.healthy_node()
    if draw.may_break([node]):
        yield 0.0, "die", draw.name(node), ""
        yield draw.random.choice(GAPS_S), "live", draw.name(node), ""


def kill(draw: Draw) -> Iterator[FaultStep]:
    """A daemon dies."""
    node = draw.healthy_node()
    if draw.may_break([node]):
        yield 0.0, "kill", draw.name(node), ""


def start(draw: Draw) -> Iterator[FaultStep]:
    """One that has died is started again."""
    if draw.damage.headless:
        yield 0.0, "start", draw.name(draw.random.choice(sorted(draw.damage.headless))), ""


def restart(draw: Draw) -> Iterator[FaultStep]:
    """A daemon dies and is started again, at once or a little later."""
    node = draw.healthy_node()
    if draw.may_break([node]):
        yield 0.0, "kill", draw.name(node), ""
        yield draw.random.choice(GAPS_S), "start", draw.name(node), ""


def stop(draw: Draw) -> Iterator[FaultStep]:
    """A daemon does not run for a while."""
    yield 0.0, "stop", draw.name(draw.healthy_node()), draw.value("stop")


def pause(draw: Draw) -> Iterator[FaultStep]:
    """None does."""
    yield 0.0, "pause", NOWHERE, draw.value("pause")


def clock(draw: Draw) -> Iterator[FaultStep]:
    """A clock is set."""
    yield 0.0, "clock", draw.name(draw.healthy_node()), draw.value("clock")


ALTERING = frozenset({*PERCENT, "slow", "jitter"})
FaultPattern = Callable[[Draw], Iterator[FaultStep]]
PATTERNS: tuple[tuple[FaultPattern, int, frozenset[str]], ...] = (
    (break_link, 8, frozenset({"up"})),
    (mend_link, 4, frozenset({"up"})),
    (flap, 2, frozenset({"down", "silent", "up"})),
    (alter, 4, frozenset({"clear"})),
    (clear, 2, frozenset({"clear"})),
    (die, 2, frozenset({"die", "live"})),
    (rack, 1, frozenset({"die", "live", "down", "up"})),
    (come_back, 3, frozenset({"live", "up"})),
    (reboot, 2, frozenset({"die", "live"})),
    (kill, 2, frozenset({"kill", "start"})),
    (start, 2, frozenset({"start"})),
    (restart, 3, frozenset({"kill", "start"})),
    (stop, 2, frozenset({"stop"})),
    (pause, 1, frozenset({"pause"})),
    (clock, 1, frozenset({"clock"})),
)


def campaign(
    topology: str,
    routing: str,
    seed: int,
    *,
    steps: int,
    kinds: Collection[str] = KINDS,
    pairs: int = MOST_PAIRS,
) -> Campaign:
    """The campaign of so many steps, of these kinds of events, that `seed` draws."""
    drawn = Draw(build(topology), Random(f"{seed} {topology}"), kinds)
    return Campaign(topology, routing, drawn.steps(steps), seed, pairs)
