"""The flows of one leaf, and what becomes of them: as an output leaf, for which it asks; as an
input leaf, where to.

A leaf knows of its own flows the uplink, and of those of others for its hosts the port by which
they come: both from the data plane's table, once a period.  Between two looks it reckons with what
it has moved itself.

Ours, where the paper leaves it open:
* a link is bad with more than p flows, or with more than there must be on one of the links that are
  left;
* a flow that has not rested since it was moved is not asked for, and a request for it is refused;
* where flows rest, one that was asked for does not count on its link at the next look, nor does one
  that was not there at the last: what still waits on the way that it has left would have others of
  that link asked for in vain;
* a flow is swapped back only to an uplink that leads to its destination;
* of an uplink that is overfull itself, a flow moves to one with room, since its leaf knows where
  there is room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from weft.daemons.core.actions import FiveTuple, SetFlowPort
from weft.daemons.core.events import SeenFlow
from weft.daemons.core.mixing import mixed
from weft.daemons.dar.iteration import draw
from weft.daemons.routing.selection import WORD, below

# for how long a request is remembered; none is on its way for so long, and a forged one does no
# more
HEARD_S = 10.0

One = TypeVar("One")
Ways = Callable[[int], Collection[int]]  # the uplinks by which an address can be reached


class LeafSettings(NamedTuple):
    """What the paper leaves open, as in daemons/dar/iteration.py, and times.

    by_queue: flows are judged by the queues that they find (section 4), and not counted.
    by_destination: a leaf's flows to one host are placed and moved together (section 4).
    limited: new flows leave uplinks that their hashes have made overfull at the first look (section
        2's start).
    cool_s: how long a flow rests when it has been moved.  active_s: silence from which on a flow
        does not count.
    """

    p: int
    by_queue: bool = False
    by_destination: bool = False
    limited: bool = False
    every_link: bool = False
    swap: bool = True
    informed: bool = False
    cool_s: float = 0.0
    active_s: float = 0.05


@dataclass(slots=True)
class OutgoingFlow:
    """A flow of a host of this leaf: its uplink, since when, whether it counts, and the last
    request for it of each switch that asked, with its time.  Switches number their requests each
    for itself."""

    port: int
    moved_s: float
    active: bool
    queued: bool
    heard: dict[int, tuple[int, float]] = field(default_factory=dict)


class Random:
    """Draws that follow from a node's number and the incarnation of its daemon."""

    def __init__(self, node: int, incarnation: int) -> None:
        one, two = mixed(node, incarnation), mixed(node + (1 << 32), incarnation)
        self._state = [one & WORD, one >> 32, two & WORD, two >> 32 | 1]

    def pick(self, of: Sequence[One]) -> One:
        """One of them, each as likely; there is at least one."""
        return of[below(draw(self._state), len(of))]


class LeafFlows:
    """The flows of one leaf; `counters` counts what was done with them."""

    def __init__(self, choices: LeafSettings, random: Random) -> None:
        self._choices, self._random = choices, random
        self.outgoing: dict[FiveTuple, OutgoingFlow] = {}
        self.incoming: list[SeenFlow] = []  # those that count
        self._certain: list[SeenFlow] = []  # those among them whose link is certain
        self._new: set[FiveTuple] = set()  # outgoing ones that were not there at the last look
        # those asked for at the last look, and by which port they came
        self._asked: dict[FiveTuple, int] = {}
        self.counters = {"moves": 0, "swaps": 0, "replaced": 0}

    def learn(self, outgoing: Iterable[SeenFlow], incoming: Iterable[SeenFlow], now: float) -> None:
        """What the data plane's table says; flows that it has no more are forgotten."""
        known, active_s = self.outgoing, self._choices.active_s
        self.outgoing = {}
        for seen in outgoing:
            flow = known.get(seen.flow) or OutgoingFlow(seen.port, now - seen.rested_s, True, False)
            flow.port, flow.active, flow.queued = seen.port, seen.idle_s <= active_s, seen.queued
            self.outgoing[seen.flow] = flow
        self._new = self.outgoing.keys() - known.keys()
        before, rest = {seen.flow for seen in self.incoming}, self._choices.cool_s > 0
        self.incoming = [seen for seen in incoming if seen.idle_s <= active_s]
        here = [
            seen
            for seen in self.incoming
            if seen.flow in before and self._asked.get(seen.flow) != seen.port
        ]
        self._certain = here if rest else self.incoming

    def up(self) -> Counter[int]:
        """Flows on each uplink that has any."""
        return Counter(flow.port for flow in self.outgoing.values() if flow.active)

    def down(self) -> Counter[int]:
        """Flows that come in by each port by which any does."""
        return Counter(seen.port for seen in self.incoming)

    def most(self, load: Counter[int], links: int) -> int:
        """How many flows a link may carry of this load on so many links."""
        return max(self._choices.p, -(-load.total() // max(links, 1)))

    def wanted(self, links: int) -> list[SeenFlow]:
        """The flows that this output leaf asks to have moved away: one of its fullest bad link, or
        one of each."""
        most, every = self.most(self.down(), links), self._choices.every_link
        load = Counter(seen.port for seen in self._certain)
        fullest = max(load.values(), default=0)
        bad = {port for port, count in load.items() if count > most and (every or count == fullest)}
        groups: dict[int, list[SeenFlow]] = {}
        for seen in self._certain:
            if seen.port in bad and seen.rested_s >= self._choices.cool_s:
                groups.setdefault(seen.port if every else 0, []).append(seen)
        found = [self._random.pick(flows) for _, flows in sorted(groups.items())]
        self._asked = {seen.flow: seen.port for seen in found}
        return found

    def room(self, links: int) -> list[int]:
        """Of the map that goes with a request, what is not free: ports by which as many flows come
        as may."""
        load = self.down()
        most = self.most(load, links)
        return [port for port, count in load.items() if count >= most]

    def crowded(self, links: int, now: float) -> list[FiveTuple]:
        """One flow of the fullest uplink, if that is overfull; or one of each whose queue calls for
        that."""
        rested = [
            (flow, each)
            for flow, each in self.outgoing.items()
            if each.active and self.rested(flow, now)
        ]
        if self._choices.by_queue:
            by_port: dict[int, list[FiveTuple]] = {}
            for flow, each in rested:
                if each.queued:
                    by_port.setdefault(each.port, []).append(flow)
            return [self._random.pick(flows) for _, flows in sorted(by_port.items())]
        load = self.up()
        fullest = max(load.values(), default=0)
        found = [
            flow for flow, each in rested if load[each.port] == fullest > self.most(load, links)
        ]
        return [self._random.pick(found)] if found else []

    def accepts(self, flow: FiveTuple, port: int, origin: int, sequence: int, now: float) -> bool:
        """Whether a request of `origin` for `flow`, which was on `port` then, still says something;
        it does so once."""
        known = self.outgoing.get(flow)
        if known is None:
            return False
        last, heard_s = known.heard.get(origin, (-1, now))
        if sequence <= last and now - heard_s < HEARD_S:
            return False
        known.heard[origin] = sequence, now
        return known.port == port and self.rested(flow, now)

    def rested(self, flow: FiveTuple, now: float) -> bool:
        """Whether `flow`, which is known, was moved long enough ago."""
        return now - self.outgoing[flow].moved_s >= self._choices.cool_s

    def together(self, flow: FiveTuple) -> list[FiveTuple]:
        """The flows that are placed and moved with `flow`, which is one of them; also such as do
        not count."""
        if not self._choices.by_destination:
            return [flow]
        return [other for other in self.outgoing if other.destination == flow.destination]

    def joined(self, now: float) -> list[SetFlowPort]:
        """Send flows that are new by the way of those to the same destination, if they are moved
        together."""
        found = []
        for flow in sorted(self._new) if self._choices.by_destination else ():
            others = [other for other in self.together(flow) if other not in self._new] or [
                min(self.together(flow))
            ]
            if self.outgoing[flow].port != (port := self.outgoing[others[0]].port):
                found.append(self._place(flow, port, now))
        return found

    def spread(self, links: int, now: float, ways: Ways) -> list[SetFlowPort]:
        """Send new flows from uplinks that are overfull to ones that have room, if that is how
        flows begin; not such as are moved together with others that are not new."""
        load = self.up()
        most, found = self.most(load, links), list[SetFlowPort]()
        for flow in (
            sorted(self._new)
            if self._choices.limited and max(load.values(), default=0) > most
            else ()
        ):
            old, group = self.outgoing[flow].port, self.together(flow)
            moved = sum(self.outgoing[one].active for one in group)
            free = [port for port in sorted(ways(flow.destination)) if load[port] + moved <= most]
            if (
                load[old] > most
                and moved
                and free
                and self.rested(flow, now)
                and self._new.issuperset(group)
            ):
                new = self._random.pick(free)
                found += [self._place(one, new, now) for one in group]
                load[old] -= moved
                load[new] += moved
                self.counters["moves"] += moved
        return found

    def adapt(
        self,
        flow: FiveTuple,
        usable: Sequence[int],
        links: int,
        now: float,
        *,
        ways: Ways,
        room: Collection[int] = (),
    ) -> list[SetFlowPort]:
        """Move `flow`, and what is moved with it, to one of the `usable` uplinks, the present one
        included; where that is full, swap as many flows back as have moved, such as can go by the
        uplink that has become free.

        room: those that have room at the far end too, if that is known: one of them that has room
            here is taken, or else any of them.
        """
        load, group = self.up(), self.together(flow)
        most, old, moved = self.most(load, links), self.outgoing[flow].port, self._count(group)
        free = [port for port in usable if port in room]
        new = self._random.pick(
            [port for port in free if load[port] + moved <= most] or free or usable
        )
        if new == old:
            return []
        self.counters["moves"] += moved
        placed = [self._place(one, new, now) for one in group]
        back = 0
        while self._choices.swap and back < moved:
            there = [
                other for other, each in self.outgoing.items() if each.port == new and each.active
            ]
            others = [
                other for other in there if other not in group and old in ways(other.destination)
            ]
            if len(there) <= most or not others:
                break
            swapped = self.together(self._random.pick(others))
            placed += [self._place(one, old, now) for one in swapped]
            back += self._count(swapped)
        self.counters["swaps"] += back
        return placed

    def replace(
        self, flow: FiveTuple, usable: Sequence[int], links: int, now: float
    ) -> list[SetFlowPort]:
        """Move `flow`, and what is moved with it, to one of the `usable` uplinks that has room, or
        to any."""
        load, group = self.up(), self.together(flow)
        most, moved = self.most(load, links), self._count(group)
        self.counters["replaced"] += moved
        port = self._random.pick([port for port in usable if load[port] + moved <= most] or usable)
        return [self._place(one, port, now) for one in group]

    def _count(self, group: Sequence[FiveTuple]) -> int:
        """How many of a group count: one at least, for which it is moved."""
        return max(1, sum(self.outgoing[one].active for one in group))

    def _place(self, flow: FiveTuple, port: int, now: float) -> SetFlowPort:
        self.outgoing[flow].port, self.outgoing[flow].moved_s = port, now
        return SetFlowPort(flow, port)
