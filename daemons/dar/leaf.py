"""Flows of one leaf: requests of an output leaf, and moves of an input leaf.

Once a period the data plane's table gives the uplink of the leaf's own flows and the input port of
flows to its hosts.  Between two periods the leaf adds its own moves.

The paper leaves open, and we decide:
* a link is bad with more than p flows, or more than an even share of the live links;
* for `cool_s` after its move a flow is not requested, and a request for it is refused;
* with `cool_s`, a requested flow, or one that is new at its port, does not count on its link in the
  next period: its packets still queued on the old path would cause requests in vain;
* a flow is swapped back only to an uplink that leads to its destination;
* a flow of an overfull uplink moves to an uplink with room, which its leaf knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple, TypeVar

from weft.daemons.core.actions import FiveTuple, SetFlowPort
from weft.daemons.core.contract import SeenFlow
from weft.daemons.core.mixing import mixed
from weft.daemons.dar.iteration import draw
from weft.daemons.routing.selection import WORD, below

# time for which a request is remembered: longer than any transit, and a limit to a forged one
HEARD_S = 10.0

Item = TypeVar("Item")
UplinksTo = Callable[[int], Collection[int]]  # address -> uplinks that lead to it


class LeafSettings(NamedTuple):
    """Parameters of a leaf; those not listed are as in daemons/dar/iteration.py.

    by_queue: move flows that meet long queues (section 4), instead of counting flows.
    ears_queued: requests wait behind the packets in a port's queue.
    by_destination: place and move a leaf's flows to one host together (section 4).
    limited: move new flows from uplinks that hashes have overfilled (section 2's start).
    cool_s: hold-down time of a flow after a move.
    active_s: silence after which a flow does not count.
    """

    p: int
    by_queue: bool = False
    ears_queued: bool = False
    by_destination: bool = False
    limited: bool = False
    every_link: bool = False
    swap: bool = True
    informed: bool = False
    pause_percent: int = 0
    cool_s: float = 0.0
    active_s: float = 0.05


@dataclass(slots=True)
class OutgoingFlow:
    """A flow of a host of this leaf.

    port: its uplink.
    moved_s: time of its last move.
    active: True if it counts.
    last_requests: by switch, sequence number and time of its last request for this flow.
    """

    port: int
    moved_s: float
    active: bool
    last_requests: dict[int, tuple[int, float]] = field(default_factory=dict)


class Random:
    """Random numbers seeded by a node's number and the incarnation of its daemon."""

    def __init__(self, node: int, incarnation: int) -> None:
        first = mixed(node, incarnation)
        second = mixed(node + (1 << 32), incarnation)
        self._state = [first & WORD, first >> 32, second & WORD, second >> 32 | 1]

    def pick(self, items: Sequence[Item]) -> Item:
        """Return one of `items`, uniformly; there must be at least one."""
        return items[below(draw(self._state), len(items))]

    def happens(self, percent: int) -> bool:
        """Return True with this probability."""
        return percent > 0 and below(draw(self._state), 100) < percent


class LeafFlows:
    """Flows of one leaf; `counters` counts their moves."""

    def __init__(self, settings: LeafSettings, random: Random) -> None:
        self._settings = settings
        self._random = random
        self.outgoing: dict[FiveTuple, OutgoingFlow] = {}
        self.incoming: list[SeenFlow] = []  # active ones
        self._certain: list[SeenFlow] = []  # incoming flows whose link is certain
        self._new: set[FiveTuple] = set()  # outgoing flows that are new in this period
        self._requested: dict[FiveTuple, int] = {}  # in this period, with their input ports
        self.counters = {"moves": 0, "swaps": 0, "replaced": 0}

    def learn(self, outgoing: Iterable[SeenFlow], incoming: Iterable[SeenFlow], now: float) -> None:
        """Take over the data plane's table; forget flows that are not in it."""
        known, active_s = self.outgoing, self._settings.active_s
        self.outgoing = {}
        for entry in outgoing:
            flow = known.get(entry.flow)
            flow = flow or OutgoingFlow(entry.port, now - entry.rested_s, True)
            flow.port = entry.port
            flow.active = entry.idle_s <= active_s
            self.outgoing[entry.flow] = flow
        self._new = self.outgoing.keys() - known.keys()
        previous = {entry.flow for entry in self.incoming}
        self.incoming = [entry for entry in incoming if entry.idle_s <= active_s]
        self._certain = self.incoming
        if self._settings.cool_s > 0:
            self._certain = [
                entry
                for entry in self.incoming
                if entry.flow in previous and self._requested.get(entry.flow) != entry.port
            ]

    def meet(self, flow: FiveTuple, port: int) -> None:
        """Note that `flow`, which may be new, leaves by `port`."""
        self.outgoing.setdefault(flow, OutgoingFlow(port, -inf, True)).port = port

    def up(self) -> Counter[int]:
        """Return the number of active flows on each uplink."""
        return Counter(flow.port for flow in self.outgoing.values() if flow.active)

    def down(self) -> Counter[int]:
        """Return the number of incoming flows of each port."""
        return Counter(entry.port for entry in self.incoming)

    def most(self, load: Counter[int], links: int) -> int:
        """Return the number of flows from which on a link is full, with `load` on `links` links."""
        return max(self._settings.p, -(-load.total() // max(links, 1)))

    def requests(self, links: int) -> list[SeenFlow]:
        """Return the flows to request: one of the fullest bad link, or one of each bad link.

        None while the leaf pauses.
        """
        most, every = self.most(self.down(), links), self._settings.every_link
        load = Counter(entry.port for entry in self._certain)
        fullest = max(load.values(), default=0)
        bad = {port for port, count in load.items() if count > most and (every or count == fullest)}
        groups: dict[int, list[SeenFlow]] = {}
        pauses = bool(bad) and self._random.happens(self._settings.pause_percent)
        for entry in [] if pauses else self._certain:
            if entry.port in bad and entry.rested_s >= self._settings.cool_s:
                groups.setdefault(entry.port if every else 0, []).append(entry)
        picked = [self._random.pick(flows) for _, flows in sorted(groups.items())]
        self._requested = {entry.flow: entry.port for entry in picked}
        return picked

    def full_ports(self, links: int) -> list[int]:
        """Return the input ports without room, for the map in a request."""
        load = self.down()
        most = self.most(load, links)
        return [port for port, count in load.items() if count >= most]

    def crowded(self, links: int, now: float) -> list[FiveTuple]:
        """Return a flow of the fullest uplink if that is overfull; none with `by_queue`."""
        load = self.up()
        fullest = max(load.values(), default=0)
        if self._settings.by_queue or fullest <= self.most(load, links):
            return []
        flows = [
            flow
            for flow, state in self.outgoing.items()
            if state.active and self.rested(flow, now) and load[state.port] == fullest
        ]
        return [self._random.pick(flows)] if flows else []

    def accepts(self, flow: FiveTuple, port: int, origin: int, sequence: int, now: float) -> bool:
        """Return True, once, if a new request of `origin` for `flow` is to move it off `port`."""
        state = self.outgoing.get(flow)
        if state is None:
            return False
        last_sequence, last_s = state.last_requests.get(origin, (-1, now))
        if sequence <= last_sequence and now - last_s < HEARD_S:
            return False
        state.last_requests[origin] = sequence, now
        return state.port == port and self.rested(flow, now)

    def rested(self, flow: FiveTuple, now: float) -> bool:
        """Return True if the last move of `flow`, a known one, is `cool_s` or more ago."""
        return now - self.outgoing[flow].moved_s >= self._settings.cool_s

    def together(self, flow: FiveTuple) -> list[FiveTuple]:
        """Return the flows that are moved with `flow`, itself and inactive ones included."""
        if not self._settings.by_destination:
            return [flow]
        return [other for other in self.outgoing if other.destination == flow.destination]

    def joined(self, now: float) -> list[SetFlowPort]:
        """Put new flows on the uplink of others to their destination, with `by_destination`."""
        if not self._settings.by_destination:
            return []
        actions = []
        for flow in sorted(self._new):
            group = self.together(flow)
            leader = next((other for other in group if other not in self._new), min(group))
            port = self.outgoing[leader].port
            if self.outgoing[flow].port != port:
                actions.append(self._place(flow, port, now))
        return actions

    def spread(self, links: int, now: float, uplinks_to: UplinksTo) -> list[SetFlowPort]:
        """Move new flows from overfull uplinks to ones with room, with `limited`.

        Groups with an older flow stay.
        """
        load = self.up()
        most = self.most(load, links)
        if not self._settings.limited or max(load.values(), default=0) <= most:
            return []
        actions: list[SetFlowPort] = []
        for flow in sorted(self._new):
            old, group = self.outgoing[flow].port, self.together(flow)
            moved = sum(self.outgoing[other].active for other in group)
            uplinks = sorted(uplinks_to(flow.destination))
            free = [port for port in uplinks if load[port] + moved <= most]
            movable = self.rested(flow, now) and self._new.issuperset(group)
            if load[old] > most and moved and free and movable:
                new = self._random.pick(free)
                actions += [self._place(other, new, now) for other in group]
                load[old] -= moved
                load[new] += moved
                self.counters["moves"] += moved
        return actions

    def adapt(
        self,
        flow: FiveTuple,
        usable: Sequence[int],
        links: int,
        now: float,
        *,
        uplinks_to: UplinksTo,
        room: Collection[int] = (),
    ) -> list[SetFlowPort]:
        """Move `flow` and its group to one of the `usable` uplinks, perhaps the present one.

        If that becomes overfull, swap as many flows back to the uplink that has become free.

        Args:
            flow: a known flow.
            usable: uplinks that lead to its destination.
            links: number of live uplinks.
            now: time, in s.
            uplinks_to: address -> uplinks that lead to it.
            room: uplinks with room at the far end, if known; preferred, those with room here first.
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
        actions = [self._place(other, new, now) for other in group]
        if not self._settings.swap:
            return actions
        return actions + self._swap_back(group, (new, old), moved, now, most, uplinks_to)

    def _swap_back(
        self,
        group: Sequence[FiveTuple],
        uplinks: tuple[int, int],
        moved: int,
        now: float,
        most: int,
        uplinks_to: UplinksTo,
    ) -> list[SetFlowPort]:
        """Move flows from the first of `uplinks` to the second.

        It ends when the first has `most`, or as many have moved as came.
        """
        new, old = uplinks
        actions: list[SetFlowPort] = []
        back = 0
        while back < moved:
            on_new = [
                other
                for other, state in self.outgoing.items()
                if state.port == new and state.active
            ]
            others = [
                other
                for other in on_new
                if other not in group and old in uplinks_to(other.destination)
            ]
            if len(on_new) <= most or not others:
                break
            swapped = self.together(self._random.pick(others))
            actions += [self._place(other, old, now) for other in swapped]
            back += self._count(swapped)
        self.counters["swaps"] += back
        return actions

    def replace(
        self, flow: FiveTuple, usable: Sequence[int], links: int, now: float
    ) -> list[SetFlowPort]:
        """Move `flow` and its group to a `usable` uplink with room, or else to any usable one."""
        load, group = self.up(), self.together(flow)
        most, moved = self.most(load, links), self._count(group)
        self.counters["replaced"] += moved
        port = self._random.pick([port for port in usable if load[port] + moved <= most] or usable)
        return [self._place(other, port, now) for other in group]

    def _count(self, group: Sequence[FiveTuple]) -> int:
        """Return the number of active flows of a group that is moved, at least one."""
        return max(1, sum(self.outgoing[flow].active for flow in group))

    def _place(self, flow: FiveTuple, port: int, now: float) -> SetFlowPort:
        state = self.outgoing[flow]
        state.port = port
        state.moved_s = now
        return SetFlowPort(flow, port)
