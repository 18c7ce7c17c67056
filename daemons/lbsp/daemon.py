"""LBSP's daemon at one switch.

Hellos detect failures, failure messages announce them, alternative groups avoid them.

A switch puts each lost or degraded link into its failure message, with its type and the affected
destinations (LBSP, section 3.3.1), and floods it over three hops.  From the messages of others and
its own links it computes its table (routing.py), and sets the routes that change.

Three hops are enough.  An edge switch needs the state of a link only if the path to it works, and
the message of the link's upper end comes by that path.  Messages go up, then down, and from an edge
switch up once more, to the aggregation switches that must choose alike.

At start a switch sets no routes until its neighbours are up or `begin_s` has passed; its
predecessor's routes forward in the meantime.  A link that has never been up is avoided from then
on, but announced later, because at the start of a whole network the messages would be too many.

The runtime reports the state that a switch's own queues require (section 5.1).  An edge switch
takes it.  An aggregation switch tells those that choose alike, two hops away by the edge switches
of its pod, and takes the state on which they agree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from math import inf
from typing import Any, NamedTuple

from weft.daemons.control.candidate_routes import HelloMachine
from weft.daemons.control.hello import HelloOutcome, NeighbourChanged, Neighbourhood
from weft.daemons.control.scoped_flooding import Notices
from weft.daemons.core import wire
from weft.daemons.core.actions import (
    NOTHING,
    Action,
    Hop,
    Note,
    Send,
    SetQueueState,
    SetRoute,
)
from weft.daemons.core.contract import DaemonEvent, LinkDegraded, QueuesCall, useless
from weft.daemons.lbsp import messages
from weft.daemons.lbsp import routing as lbsp
from weft.daemons.lbsp.messages import (
    MOST_STATE,
    Crowding,
    Failures,
    LbspBody,
    LbspNotice,
    LinkFailure,
)
from weft.daemons.lbsp.routing import (
    AGGREGATION,
    CORE,
    EDGE,
    LbspRoute,
    LbspShape,
    SwitchPosition,
    Uplink,
)
from weft.topologies.core.address import Prefix, covering

FAILURE_SCOPE = 3  # hops (section 3.3.1)
CROWDING_SCOPE = 2
HOLD_S = 0.001  # between news and new routes, which handles several changes together
HostRoutes = Sequence[tuple[Prefix, tuple[Hop, ...]]]


class LbspTimes(NamedTuple):
    """Times of a switch.

    lifetime_ms: lifetime of a failure message.
    begin_s: time for neighbours to come up at first.
    patience_s: time after which links that have never been up are announced.
    gap_s: time between repetitions of a message.
    """

    lifetime_ms: int = 3000
    begin_s: float = 0.150
    patience_s: float = 1.0
    gap_s: float = 0.030


class Lbsp(HelloMachine):
    """State machine of LBSP for a switch of a fat-tree with this shape.

    hosts: prefixes of an edge switch's own hosts, each with its hop.
    """

    _required_state = 0
    _state = 0
    _begun = False
    _begins_s = inf  # time of the first routes
    _announces_s = inf  # time to announce links that have never been up
    _due_s = inf  # time of the next computation
    _asymmetric: frozenset[Prefix] = frozenset()

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        shape: LbspShape,
        hosts: HostRoutes,
        *,
        incarnation: int,
        times: LbspTimes | None = None,
    ) -> None:
        super().__init__(neighbourhood)
        self._shape = shape
        self._times = times or LbspTimes()
        self._position = shape.position(self.node)
        self._hosts = dict(hosts)
        self._far = dict(neighbour.hop for neighbour in neighbourhood.neighbours())
        self._carriers: set[int] = {hop.port for hops in self._hosts.values() for hop in hops}
        self._up: set[int] = set()  # ports whose neighbour is up
        self._ever_up: set[int] = set()  # ports whose neighbour has been up
        self._degraded: set[int] = set()
        self._failures = self._notices(FAILURE_SCOPE, self._far, incarnation)
        agreeing = self._down if self._position.tier == AGGREGATION else ()
        self._crowding = self._notices(CROWDING_SCOPE, agreeing, incarnation)
        self._routes: dict[Prefix, tuple[Hop, ...]] = {}
        self._counters = {"computations": 0, "contradictions": 0}

    @cached_property
    def _links(self) -> dict[int, Uplink]:
        """Links to other switches, by port."""
        return {port: self._shape.link(self.node, far) for port, far in self._far.items()}

    @cached_property
    def _down(self) -> list[int]:
        """Ports of switches of the tier below."""
        first = self._shape.down_ports(self._position.tier)
        return [port for port in self._far if port < first]

    @cached_property
    def _above(self) -> list[int]:
        """Ports of switches of the tier above."""
        return [port for port in self._far if port not in self._down]

    def _notices(self, scope: int, says_at: Collection[int], incarnation: int) -> Notices[LbspBody]:
        return Notices[LbspBody](
            self.node,
            self._far,
            incarnation=incarnation,
            says_at=says_at,
            onward=self._onward,
            scope=scope,
            empty=_is_empty,
            encode=messages.encode,
            lifetime_ms=self._times.lifetime_ms,
            gap_s=self._times.gap_s,
        )

    @property
    def deadline(self) -> float:
        waits = (
            self._failures.deadline,
            self._crowding.deadline,
            self._due_s,
            self._begins_s,
            self._announces_s,
        )
        return min(super().deadline, *waits)

    def start(self, now: float) -> Sequence[Action]:
        self._begins_s = now + self._times.begin_s
        self._announces_s = now + max(self._times.begin_s, self._times.patience_s)
        return [*self._set_hosts(self._hosts), *super().start(now)]

    def _other(
        self, message: wire.DaemonMessage | None, payload: bytes, port: int, now: float
    ) -> Sequence[Action]:
        notice = messages.decode(payload)
        return self._hear(notice, port, now) if notice else NOTHING

    def link_changed(self, port: int, up: bool, now: float) -> Sequence[Action]:
        if port in self._far:
            return super().link_changed(port, up, now)
        if up == (port in self._carriers):
            return NOTHING
        (self._carriers.add if up else self._carriers.discard)(port)
        return self._set_hosts(
            [prefix for prefix, (hop,) in self._hosts.items() if hop.port == port]
        )

    def tick(self, now: float) -> Sequence[Action]:
        actions = [*super().tick(now)]
        forgotten, sends = self._failures.tick(now)
        actions += [*sends, *(self._changed(now) if forgotten else ())]
        forgotten, sends = self._crowding.tick(now)
        actions += [*sends, *(self._agree() if forgotten else ())]
        if now >= self._begins_s:
            actions += self._begin(now)
        if now >= self._announces_s:
            self._announces_s = inf
            self._ever_up.update(self._far)
            actions += self._changed(now)
        if now >= self._due_s:
            actions += self._compute()
        return actions

    def event(self, event: DaemonEvent, now: float) -> Sequence[Action]:
        match event:
            case LinkDegraded(port, degraded):
                return self._degrade(port, degraded, now)
            case QueuesCall(state):
                return self._queues_call(state, now)
        raise useless(event)

    def _degrade(self, port: int, degraded: bool, now: float) -> Sequence[Action]:
        """Handle the news that the link at `port` is degraded, or healthy again.

        Raises:
            ValueError: no other switch is at `port`.
        """
        if port not in self._far:
            raise ValueError(
                f"port {port} leads to no other switch; those that do are {sorted(self._far)}"
            )
        if degraded == (port in self._degraded):
            return NOTHING
        (self._degraded.add if degraded else self._degraded.discard)(port)
        name = self._neighbourhood.name(self._far[port])
        text = f"port {port}: the link to {name} is {'degraded' if degraded else 'healthy again'}"
        return [Note(text), *self._changed(now)]

    def _queues_call(self, state: int, now: float) -> Sequence[Action]:
        """Take the state that the queues of this switch require (section 5.1).

        Raises:
            ValueError: there is no such state.
        """
        if not 0 <= state <= MOST_STATE:
            raise ValueError(f"states are 0 .. {MOST_STATE}, got {state}")
        if state == self._required_state or self._position.tier == CORE:
            return NOTHING
        self._required_state = state
        sends = (
            self._crowding.say(Crowding(state), now) if self._position.tier == AGGREGATION else []
        )
        return [*self._agree(), *sends]

    def converged(self) -> bool:
        return super().converged() and self._begun and self._due_s == inf and not self._known()

    def status(self) -> dict[str, Any]:
        name = self._neighbourhood.name
        refused = self._shape.own_range(self._position) if self._position.tier != CORE else None
        forwarded = [prefix for prefix in self._routes if prefix != refused]
        lost = [prefix for prefix in forwarded if not self._routes[prefix]]
        return {
            **super().status(),
            **self._counters,
            "routes": len(forwarded) - len(lost),
            "routes_lost": sorted(map(str, lost)),
            "state": self._state,
            "asymmetric": sorted(map(str, self._asymmetric)),
            "failures": [
                {
                    "link": self._link_name(link),
                    "type": self._shape.kind(link),
                    "degraded": degraded,
                }
                for link, degraded in sorted(self._known().items())
            ],
            "degraded": [name(self._far[port]) for port in sorted(self._degraded)],
        }

    def _set_hosts(self, prefixes: Iterable[Prefix]) -> list[Action]:
        return [
            SetRoute(
                prefix, tuple(hop for hop in self._hosts[prefix] if hop.port in self._carriers)
            )
            for prefix in prefixes
        ]

    def _follow(self, events: Iterable[HelloOutcome], now: float) -> list[Action]:
        """Record and announce neighbours that came up or died; return all actions."""
        came_up: list[int] = []
        rest: list[Action] = []
        changed = False
        for event in events:
            if not isinstance(event, NeighbourChanged):
                rest.append(event)
                continue
            changed = True
            (self._up.add if event.up else self._up.discard)(event.hop.port)
            if event.up:
                came_up.append(event.hop.port)
                self._ever_up.add(event.hop.port)
        sends: list[Send] = []
        for port in came_up:
            sends += [*self._failures.tell(port, now), *self._crowding.tell(port, now)]
        if not changed:
            return rest
        if not self._begun and len(self._up) == len(self._far):
            return [*rest, *sends, *self._begin(now)]
        return [*self._changed(now), *rest, *sends]

    def _begin(self, now: float) -> list[Action]:
        """Set the first routes; neighbours that are not up now count as lost."""
        self._begun = True
        self._begins_s = inf
        return [*self._changed(now), *self._compute()]

    def _changed(self, now: float) -> list[Send]:
        """Announce changes of our own links, and schedule a computation of the routes."""
        if not self._begun:
            return []
        self._due_s = min(self._due_s, now + HOLD_S)
        return self._failures.say(Failures(tuple(self._own_failures())), now)

    def _own_failures(self) -> Iterable[LinkFailure]:
        for port, link in sorted(self._links.items()):
            if (port not in self._up and port in self._ever_up) or self._is_degraded(port):
                kind, affected = self._shape.kind(link), self._shape.affected(link, self._position)
                yield LinkFailure(kind, port in self._up, affected, self._far[port])

    def _is_degraded(self, port: int) -> bool:
        """Return True if this switch, or the lower end of the link, knows it as degraded.

        We repeat the lower end's announcement, because it does not reach all affected switches.
        """
        if port in self._degraded:
            return True
        entry = self._failures.notices.get(self._far[port])
        if not entry or self._links[port].upper != self._position:
            return False
        return any(
            failure.degraded and failure.neighbour == self.node
            for failure in _failures_in(entry.notice.body)
        )

    def _hear(self, notice: LbspNotice, port: int, now: float) -> Sequence[Action]:
        if not self._makes_sense(notice):
            self._counters["contradictions"] += 1
            return NOTHING
        if isinstance(notice.body, Crowding):
            is_news, sends = self._crowding.hear(notice, port, now)
            return [*self._agree(), *sends] if is_news else sends
        is_news, sends = self._failures.hear(notice, port, now)
        return [*sends, *self._changed(now)] if is_news else sends

    def _onward(self, notice: LbspNotice, port: int) -> Sequence[int]:
        """Return the ports to which a notice from `port` is passed on."""
        if self._position.tier == CORE:
            return self._down
        if self._position.tier == AGGREGATION:
            return self._down if port in self._above else ()
        return self._above

    def _makes_sense(self, notice: LbspNotice) -> bool:
        """Return True if the origin is a switch, and its failures fit its links."""
        shape, origin = self._shape, notice.origin
        failures = _failures_in(notice.body)
        try:
            reporter = shape.position(origin)
            links = [shape.link(origin, failure.neighbour) for failure in failures]
        except ValueError:
            return False
        return all(
            (failure.kind, failure.affected) == (shape.kind(link), shape.affected(link, reporter))
            for failure, link in zip(failures, links, strict=True)
        )

    def _known(self) -> dict[Uplink, bool]:
        """Return the known failed (False) and degraded (True) links; our own as we see them."""
        links: dict[Uplink, bool] = {}
        for origin, (notice, *_) in self._failures.notices.items():
            for failure in _failures_in(notice.body):
                link = self._shape.link(origin, failure.neighbour)
                links[link] = bool(failure.degraded) and links.get(link, True)
        for port, link in self._links.items():
            if port in self._up and not links.get(link, True):
                del links[link]  # hellos pass, so the other end's announcement is out of date
            if port not in self._up:
                links[link] = False
            elif self._is_degraded(port):
                links[link] = True
        return links

    def _compute(self) -> list[Action]:
        """Compute all routes and set those that change."""
        self._due_s = inf
        self._counters["computations"] += 1
        known = self._known()
        dead = [link for link, degraded in known.items() if not degraded]
        slow = [link for link, degraded in known.items() if degraded]
        table = lbsp.table(self._shape, self._position, dead, slow)
        routes = {prefix: self._hops(route) for prefix, route in table.items()}
        for prefix in self._routes.keys() - routes.keys():  # no longer an exception
            routes[prefix] = self._hops(table[covering(prefix, table)])
        changes: list[Action] = [
            SetRoute(prefix, hops)
            for prefix, hops in routes.items()
            if self._routes.get(prefix) != hops
        ]
        self._routes = routes
        return changes + self._note_asymmetry(table)

    def _hops(self, route: LbspRoute) -> tuple[Hop, ...]:
        return tuple(Hop(port, self._far[port]) for port in route.ports)

    def _note_asymmetry(self, table: Mapping[Prefix, LbspRoute]) -> list[Action]:
        previous = self._asymmetric
        self._asymmetric = frozenset(
            prefix for prefix, route in table.items() if not route.symmetric
        )
        notes: list[Action] = [
            Note(f"{prefix}: no link group is intact; its packets take all ports that lead there")
            for prefix in sorted(self._asymmetric - previous)
        ]
        return notes + [
            Note(f"{prefix}: a link group is intact again")
            for prefix in sorted(previous - self._asymmetric)
        ]

    def _agree(self) -> list[Action]:
        """Take the common state of this switch and those that choose alike."""
        required = [self._required_state]
        for origin, (notice, *_) in self._crowding.notices.items():
            if self._alike(self._shape.position(origin)) and isinstance(notice.body, Crowding):
                required.append(notice.body.state)
        state = lbsp.agreed(required)
        if state == self._state:
            return []
        self._state = state
        return [SetQueueState(state)]

    def _alike(self, other: SwitchPosition) -> bool:
        """Return True if an aggregation switch carries the same flows as this one."""
        tier, pod, number = self._position
        apart = (other.number - number) % self._shape.groups
        return tier == AGGREGATION and other[:2] == (tier, pod) and not apart

    def _link_name(self, link: Uplink) -> str:
        letters = {EDGE: "e", AGGREGATION: "a"}
        tier, pod, number = link.lower
        upper = link.upper
        above = (
            f"a{upper.pod}.{upper.number}"
            if tier == EDGE
            else f"c{upper.pod * self._shape.d + upper.number}"
        )
        return f"{letters[tier]}{pod}.{number}-{above}"


def _failures_in(body: LbspBody) -> Sequence[LinkFailure]:
    return body.failures if isinstance(body, Failures) else ()


def _is_empty(body: LbspBody) -> bool:
    return not (body.failures if isinstance(body, Failures) else body.state)
