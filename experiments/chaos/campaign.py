"""A campaign of faults: a network, a scheme, and what happens to it when; all of it can be written
on one line.

An event is written TIME:KIND[:WHERE[:VALUE]], and events are joined by +:

    0.1:down:h0-h3+0.25:silent:h1-w0+0.3:deaf:h0-h3:h3+0.5:up:h1-w0

time in seconds since the campaign began.  Kinds, with what WHERE and VALUE are:

    down LINK           its carrier goes at both ends
    silent LINK         it passes nothing, and carriers stay
    deaf LINK NODE      that end hears nothing more of it, the other does
    up LINK             it works again, however it failed
    lose, double, corrupt, replay LINK %
                        so many of its packets are lost, come twice, come with a bit changed, or
                        bring with them one that has passed before
    slow, jitter LINK MS
                        packets take that much longer; up to that much, by which they overtake each
                        other
    clear LINK          it does to packets what it should again
    die NODE            it loses its power, and neighbours see nothing of that but silence
    live NODE           it has power again, empty tables, and a new daemon
    kill NODE           its daemon ends, and it forwards as before
    start NODE          it has a daemon again, which finds the routes of the one before
    stop NODE MS        its daemon does not run for so long, and what comes for it is queued
    pause - MS          none does
    clock NODE MS       its clock is set on by so much, or back

LINK may be `all` where packets are concerned.  What makes packets do as they should not ends with
the last event.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weft.daemons.core.node_config import routers
from weft.topologies.core.grammar import unknown

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

LINKS = ("down", "silent", "deaf", "up")
PACKETS = ("lose", "double", "corrupt", "replay", "slow", "jitter", "clear")
NODES = ("die", "live", "kill", "start", "stop", "clock")
WHOLE_NETWORK = ("pause",)
KINDS = (*LINKS, *PACKETS, *NODES, *WHOLE_NETWORK)
PERCENT, MILLISECONDS = (
    ("lose", "double", "corrupt", "replay"),
    ("slow", "jitter", "stop", "pause", "clock"),
)
ALTERED = {  # of packets: the field of a Wire that each kind is
    "lose": "loss_fraction",
    "double": "duplicate_fraction",
    "corrupt": "corrupt_fraction",
    "replay": "replay_fraction",
    "slow": "delay_s",
    "jitter": "jitter_s",
}
ALL, NOWHERE = "all", "-"
MOST_EVENTS, MOST_S, MOST_MS = 10_000, 3600.0, 1e7
MOST_PAIRS = 1000  # that are looked at unless something else is said


@dataclass(frozen=True, order=True)
class FaultEvent:
    """at_s: since the campaign began.  where: the name of a link or node.  value: see the table
    above.
    """

    at_s: float
    kind: str
    where: str
    value: str = ""

    def __str__(self) -> str:
        return ":".join(
            [
                plain(self.at_s),
                self.kind,
                *([self.where] if self.where else []),
                *filter(None, [self.value]),
            ]
        )

    @property
    def lasts_s(self) -> float:
        """For how long daemons do not run by it."""
        return self.number / 1000 if self.kind in ("stop", "pause") else 0.0

    @property
    def number(self) -> float:
        """Its value, a number."""
        return float(self.value)


def plain(number: float) -> str:
    """`number` without an exponent, whose + would begin another event; to a millionth."""
    return f"{number:.6f}".rstrip("0").rstrip(".")


def written(events: Iterable[FaultEvent]) -> str:
    """`events` on one line, as parse() reads them."""
    return "+".join(map(str, events))


def parse(text: str, topology: Topology) -> tuple[FaultEvent, ...]:
    """The events that `text` lists, in order of time.

    ValueError, in one line, for what `topology` has not.
    """
    events = tuple(
        sorted(
            (_event(one, topology) for one in text.split("+") if one), key=lambda event: event.at_s
        )
    )
    if len(events) > MOST_EVENTS:
        raise ValueError(f"a campaign has at most {MOST_EVENTS} events, got {len(events)}")
    return events


def _event(text: str, topology: Topology) -> FaultEvent:
    at, _, rest = text.partition(":")
    kind, _, rest = rest.partition(":")
    where, _, value = rest.partition(":")
    try:
        at_s = float(at)
    except ValueError:
        at_s = math.nan
    if not 0 <= at_s <= MOST_S:
        raise ValueError(
            f"event {text!r}: begins with its time, 0 .. {MOST_S:g} s, then a kind, as "
            f"0.1:down:h0-h3"
        )
    if kind not in KINDS:
        raise ValueError(f"event {text!r}: " + unknown("kind", kind, KINDS))
    event = FaultEvent(at_s, kind, where, value)
    _check(event, topology)
    return event


def _check(event: FaultEvent, topology: Topology) -> None:
    """ValueError if there is no such link or node, or the value is none."""
    said, kind, value = f"event {str(event)!r}", event.kind, event.value
    if kind in LINKS or (kind in PACKETS and event.where != ALL):
        link = topology.link(event.where)
        if kind == "deaf":
            node = topology.naming.node(value)
            if node not in topology.links[link, [0, 2]].tolist():
                raise ValueError(f"{said}: {value} is no end of {event.where}")
    elif kind in NODES:
        if topology.naming.node(event.where) not in routers(topology):
            raise ValueError(f"{said}: {event.where} runs no daemon")
    elif kind in WHOLE_NETWORK and event.where != NOWHERE:
        raise ValueError(f"{said}: concerns all nodes, write - for where")
    if kind in PERCENT or kind in MILLISECONDS:
        least, most = (
            (0.0, 100.0) if kind in PERCENT else (-MOST_MS if kind == "clock" else 0.0, MOST_MS)
        )
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not least <= number <= most:
            raise ValueError(
                f"{said}: ends in {'%' if kind in PERCENT else 'ms'}, {plain(least)} .. "
                f"{plain(most)}"
            )
    elif value and kind != "deaf":
        raise ValueError(f"{said}: takes no value")


@dataclass
class Damage:
    """What is broken, after some of the events of a campaign.

    deaf: (link, end) for each end that hears nothing of a link that has a carrier, both of a silent
        one.
    dead: nodes without power.  headless: nodes that forward without a daemon.
    """

    down: set[int] = field(default_factory=set)
    deaf: set[tuple[int, int]] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)
    headless: set[int] = field(default_factory=set)

    def copy(self) -> Damage:
        """The same, which does not change with this one."""
        return Damage(set(self.down), set(self.deaf), set(self.dead), set(self.headless))

    def links(self) -> set[int]:
        """The links that do not carry packets both ways."""
        return self.down | {link for link, _ in self.deaf}

    def add(self, event: FaultEvent, topology: Topology) -> None:
        """`event` has happened."""
        if event.kind in LINKS:
            link = topology.link(event.where)
            ends = topology.links[link, [0, 2]].tolist()
            match event.kind:
                case "down":
                    self.down.add(link)
                case "silent":
                    self.deaf |= {(link, end) for end in ends}
                case "deaf":
                    self.deaf.add((link, topology.naming.node(event.value)))
                case "up":
                    self.down.discard(link)
                    self.deaf -= {(link, end) for end in ends}
        elif event.kind in ("die", "live", "kill", "start"):
            node = topology.naming.node(event.where)
            match event.kind:
                case "die":
                    self.dead.add(node)
                    self.headless.discard(node)
                case "live":
                    self.dead.discard(node)
                    self.headless.discard(node)
                case "kill" if node not in self.dead:
                    self.headless.add(node)
                case "start":
                    self.headless.discard(node)


def alteration(event: FaultEvent) -> dict[str, float]:
    """The field of a Wire that `event`, one of ALTERED, sets."""
    return {ALTERED[event.kind]: event.number / (100 if event.kind in PERCENT else 1000)}


def damage(events: Iterable[FaultEvent], topology: Topology) -> Damage:
    """What is broken after `events`."""
    found = Damage()
    for event in events:
        found.add(event, topology)
    return found


@dataclass(frozen=True)
class Campaign:
    """topology, routing: as `weft up` takes them.  seed: of the chances that packets have.  pairs:
    of servers that are looked at, the same ones for the same seed.
    """

    topology: str
    routing: str
    events: tuple[FaultEvent, ...]
    seed: int = 0
    pairs: int = MOST_PAIRS

    @property
    def ends_s(self) -> float:
        """When the last event has happened, and no daemon is stopped any more."""
        return max((event.at_s + event.lasts_s for event in self.events), default=0.0)

    def command(self, engine: str) -> str:
        """What repeats it."""
        settings = {
            "topology": self.topology,
            "routing": self.routing,
            "events": written(self.events) or "none",
        }
        settings |= {"campaign": str(self.seed)} | (
            {"pairs": str(self.pairs)} if self.pairs != MOST_PAIRS else {}
        )
        given = " ".join(f"--set {key}={value}" for key, value in settings.items())
        return f"weft run chaos --engine {engine} {given}"


@dataclass(frozen=True)
class Finding:
    """What was not as it must be: a word for what kind of thing, and what it was."""

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


Findings = Sequence[Finding]
