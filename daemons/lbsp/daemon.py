"""LBSP's daemon at one switch: failures found by hellos, told by failure messages, answered by
alternative groups.

Every switch says hello at each port to another switch.  A link that is lost, or degraded, goes into
the switch's failure message: its type and the destinations affected (LBSP, section 3.3.1), flooded
over three hops.  From what it hears and what it sees itself a switch works out its table
(routing.py), and sets the routes that change.

Three hops are enough.  What an edge switch must know of a link is needed only if the way to it
works, and the message of the link's upper end comes by that way: from the far aggregation switch,
over core and aggregation switch.  So messages go up, then down, and from an edge switch once more
up, to the aggregation switches that must choose alike.

A switch that begins sets no routes before its neighbours are all up, or have had the time to be:
routes that a predecessor left forward meanwhile.  A link that has never been up it leaves out from
then on, but tells others only some time later: where a whole network begins, switch after switch,
there would be more to tell than to hear.

Section 5.1.  The carrier tells which state a switch's own queues call for.  An edge switch takes
it; an aggregation switch tells those that choose alike, two hops away through the edge switches of
its pod, and takes what they agree on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any

from weft.daemons.control.hello import HelloOutcome, NeighbourChanged, Neighbourhood
from weft.daemons.control.scoped_flooding import Notice, Notices
from weft.daemons.core import wire
from weft.daemons.core.actions import (
    NOTHING,
    UNCHANGED,
    Action,
    Hop,
    Note,
    Send,
    SetQueueState,
    SetRoute,
)
from weft.daemons.core.contract import Adjacencies, useless
from weft.daemons.core.events import DaemonEvent, LinkDegraded, QueuesCall
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
from weft.topologies.core.address import Prefix

FAILURE_SCOPE = 3  # hops (section 3.3.1)
CROWDING_SCOPE = 2
HostRoutes = Sequence[tuple[Prefix, tuple[Hop, ...]]]


class Lbsp:
    """LBSP's state machine for switch `node` in a fat-tree of this shape.

    hosts: of an edge switch, its own, and the port of each.
    begin_s: how long neighbours may take to come up at first.
    patience_s: how long before others are told that one has not.
    hold_s: from news to new routes, so that what comes together is dealt with together.
    """

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        shape: LbspShape,
        hosts: HostRoutes,
        *,
        incarnation: int,
        lifetime_ms: int = 3000,
        begin_s: float = 0.150,
        patience_s: float = 1.0,
        hold_s: float = 0.001,
        gap_s: float = 0.030,
    ) -> None:
        self._neighbourhood, self._shape = neighbourhood, shape
        self._node = node = neighbourhood.node
        self._place = shape.place(node)
        self._hosts = dict(hosts)
        self._at = {
            neighbour.hop.port: neighbour.hop.node for neighbour in neighbourhood.neighbours()
        }
        self._links = {port: shape.link(node, other) for port, other in self._at.items()}
        self._carriers: set[int] = {hop.port for hops in self._hosts.values() for hop in hops}
        self._up: set[int] = set()  # ports whose neighbour is
        self._degraded: set[int] = set()
        first = shape.down_ports(self._place.tier)
        self._down = [port for port in self._at if port < first]
        self._above = [port for port in self._at if port >= first]
        told: Any = {
            "empty": _says_nothing,
            "encode": messages.encode,
            "lifetime_ms": lifetime_ms,
            "gap_s": gap_s,
        }
        self._failures: Notices[LbspBody] = Notices(
            node,
            self._at,
            incarnation=incarnation,
            says_at=self._at,
            onward=self._onward,
            scope=FAILURE_SCOPE,
            **told,
        )
        self._crowding: Notices[LbspBody] = Notices(
            node,
            self._at,
            incarnation=incarnation,
            says_at=self._down if self._place.tier == AGGREGATION else (),
            onward=self._onward,
            scope=CROWDING_SCOPE,
            **told,
        )
        self._want = self._state = 0
        self._begin_s, self._patience_s, self._hold_s = begin_s, max(begin_s, patience_s), hold_s
        self._begins_s = inf  # when routes are set first
        self._tells_s = inf  # when others are told of links that have never been up
        self._ever: set[int] = set()  # ports whose neighbour has been
        self._due_s = inf  # when routes are to be worked out
        self._begun = False
        self._routes: dict[Prefix, tuple[Hop, ...]] = {}
        self._asymmetric: frozenset[Prefix] = frozenset()
        self._counters = {"computations": 0, "contradictions": 0}

    @property
    def deadline(self) -> float:
        waits = (
            self._failures.deadline,
            self._crowding.deadline,
            self._due_s,
            self._begins_s,
            self._tells_s,
        )
        return min(self._neighbourhood.deadline, *waits)

    def start(self, now: float) -> Sequence[Action]:
        self._begins_s, self._tells_s = now + self._begin_s, now + self._patience_s
        return [*self._set_hosts(self._hosts), *self._follow(self._neighbourhood.start(now), now)]

    def receive(self, payload: bytes, port: int, now: float) -> Sequence[Action]:
        if self._neighbourhood.refresh(payload, port, now):
            return UNCHANGED
        message = messages.decode(payload) or wire.decode(payload)
        if isinstance(message, wire.Hello):
            return self._follow(self._neighbourhood.receive(message, payload, port, now), now)
        return self._hear(message, port, now) if isinstance(message, Notice) else NOTHING

    def link_changed(self, port: int, up: bool, now: float) -> Sequence[Action]:
        if port in self._at:
            return self._follow(self._neighbourhood.link_changed(port, up, now), now)
        if up == (port in self._carriers):
            return NOTHING
        (self._carriers.add if up else self._carriers.discard)(port)
        return self._set_hosts(
            [prefix for prefix, (hop,) in self._hosts.items() if hop.port == port]
        )

    def tick(self, now: float) -> Sequence[Action]:
        actions = self._follow(self._neighbourhood.tick(now), now)
        forgotten, sends = self._failures.tick(now)
        actions += [*sends, *(self._changed(now) if forgotten else ())]
        forgotten, sends = self._crowding.tick(now)
        actions += [*sends, *(self._agree() if forgotten else ())]
        if now >= self._begins_s:
            actions += self._begin(now)
        if now >= self._tells_s:
            self._tells_s = inf
            self._ever.update(self._at)
            actions += self._changed(now)
        if now >= self._due_s:
            actions += self._work_out()
        return actions

    def event(self, event: DaemonEvent, now: float) -> Sequence[Action]:
        match event:
            case LinkDegraded(port, degraded):
                return self._degrade(port, degraded, now)
            case QueuesCall(state):
                return self._queues_call(state, now)
        raise useless(event)

    def _degrade(self, port: int, degraded: bool, now: float) -> Sequence[Action]:
        """The link at `port` works slower than it should, or as it should again: somebody says so
        or has measured it.

        ValueError if no other switch is there.
        """
        if port not in self._at:
            raise ValueError(
                f"port {port} leads to no other switch; those that do are {sorted(self._at)}"
            )
        if degraded == (port in self._degraded):
            return NOTHING
        (self._degraded.add if degraded else self._degraded.discard)(port)
        name = self._neighbourhood.name(self._at[port])
        text = f"port {port}: the link to {name} is {'degraded' if degraded else 'sound again'}"
        return [Note(text), *self._changed(now)]

    def _queues_call(self, state: int, now: float) -> Sequence[Action]:
        """Take the state that the queues of this switch call for (section 5.1).

        Raises:
            ValueError: there is no such state.
        """
        if not 0 <= state <= MOST_STATE:
            raise ValueError(f"queues call for state {state}; states are 0 .. {MOST_STATE}")
        if state == self._want or self._place.tier == CORE:
            return NOTHING
        self._want = state
        sends = self._crowding.say(Crowding(state), now) if self._place.tier == AGGREGATION else []
        return [*self._agree(), *sends]

    def converged(self) -> bool:
        return (
            self._neighbourhood.complete()
            and self._begun
            and self._due_s == inf
            and not self._known()
        )

    def adjacencies(self) -> Adjacencies:
        return self._neighbourhood.adjacencies()

    def status(self) -> dict[str, Any]:
        name = self._neighbourhood.name
        refused = self._shape.own_range(self._place) if self._place.tier != CORE else None
        forwarded = [prefix for prefix in self._routes if prefix != refused]
        lost = [prefix for prefix in forwarded if not self._routes[prefix]]
        return {
            **self._neighbourhood.status(),
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
            "degraded": [name(self._at[port]) for port in sorted(self._degraded)],
        }

    def _set_hosts(self, prefixes: Iterable[Prefix]) -> list[Action]:
        return [
            SetRoute(
                prefix, tuple(hop for hop in self._hosts[prefix] if hop.port in self._carriers)
            )
            for prefix in prefixes
        ]

    def _follow(self, events: Iterable[HelloOutcome], now: float) -> list[Action]:
        """Note who came and went, say so, and do the rest of `events`."""
        came: list[int] = []
        rest: list[Action] = []
        changed = False
        for event in events:
            if not isinstance(event, NeighbourChanged):
                rest.append(event)
                continue
            changed = True
            (self._up.add if event.up else self._up.discard)(event.hop.port)
            if event.up:
                came.append(event.hop.port)
                self._ever.add(event.hop.port)
        told = [
            send
            for port in came
            for notices in (self._failures, self._crowding)
            for send in notices.tell(port, now)
        ]
        if not changed:
            return rest
        if not self._begun and len(self._up) == len(self._at):
            return [*rest, *told, *self._begin(now)]
        return [*self._changed(now), *rest, *told]

    def _begin(self, now: float) -> list[Action]:
        """Whoever is not there now is lost."""
        self._begun, self._begins_s = True, inf
        return [*self._changed(now), *self._work_out()]

    def _changed(self, now: float) -> list[Send]:
        """Our own links have, or what others say: tell what is new of ours, and work out the routes
        soon."""
        if not self._begun:
            return []
        self._due_s = min(self._due_s, now + self._hold_s)
        return self._failures.say(Failures(tuple(self._own_failures())), now)

    def _own_failures(self) -> Iterable[LinkFailure]:
        for port, link in sorted(self._links.items()):
            if (port not in self._up and port in self._ever) or self._is_degraded(port):
                affected = self._shape.affected(link, self._place)
                yield LinkFailure(
                    self._shape.kind(link), affected, self._at[port], degraded=port in self._up
                )

    def _is_degraded(self, port: int) -> bool:
        """Whether we say so, or the lower end does, whose messages do not reach all whom they
        concern."""
        held = self._failures.held.get(self._at[port])
        body = held.notice.body if held and self._links[port].upper == self._place else None
        said = body.failures if isinstance(body, Failures) else ()
        return port in self._degraded or any(
            each.degraded and each.neighbour == self._node for each in said
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
        """Where what came in at `port` is passed on: to whom it may matter."""
        if self._place.tier == CORE:
            return self._down
        if self._place.tier == AGGREGATION:
            return self._down if port in self._above else ()
        return self._above

    def _makes_sense(self, notice: LbspNotice) -> bool:
        """Whether the origin is a switch, and types and ranges are those of links that it has."""
        shape, origin, body = self._shape, notice.origin, notice.body
        try:
            reporter = shape.place(origin)
            failures = body.failures if isinstance(body, Failures) else ()
            links = [(each, shape.link(origin, each.neighbour)) for each in failures]
        except ValueError:
            return False
        return all(
            (each.kind, each.affected) == (shape.kind(at), shape.affected(at, reporter))
            for each, at in links
        )

    def _known(self) -> dict[Uplink, bool]:
        """The links that have failed (False) or are degraded (True), as far as is known; of its
        own, what it sees."""
        shape = self._shape
        found: dict[Uplink, bool] = {}
        for origin, (notice, *_) in self._failures.held.items():
            body = notice.body
            for each in body.failures if isinstance(body, Failures) else ():
                link = shape.link(origin, each.neighbour)
                found[link] = each.degraded and found.get(link, True)
        for port, link in self._links.items():
            if port in self._up and not found.get(link, True):
                del found[link]  # hellos pass: what the other end said of it is old
            if port not in self._up:
                found[link] = False
            elif self._is_degraded(port):
                found[link] = True
        return found

    def _work_out(self) -> list[Action]:
        """Set the routes that differ from those that are set."""
        self._due_s = inf
        self._counters["computations"] += 1
        known = self._known()
        dead, degraded = (
            [link for link, slow in known.items() if slow == kind] for kind in (False, True)
        )
        table = lbsp.table(self._shape, self._place, dead, degraded)
        wanted = {prefix: self._hops(route) for prefix, route in table.items()}
        for prefix in self._routes.keys() - wanted.keys():  # a range that is as all others again
            wanted[prefix] = self._hops(table[covering(prefix, table)])
        changes: list[Action] = [
            SetRoute(prefix, hops)
            for prefix, hops in wanted.items()
            if self._routes.get(prefix) != hops
        ]
        self._routes = wanted
        return changes + self._note_asymmetry(table)

    def _hops(self, route: LbspRoute) -> tuple[Hop, ...]:
        return tuple(Hop(port, self._at[port]) for port in route.ports)

    def _note_asymmetry(self, table: Mapping[Prefix, LbspRoute]) -> list[Action]:
        was, self._asymmetric = (
            self._asymmetric,
            frozenset(prefix for prefix, route in table.items() if not route.symmetric),
        )
        notes: list[Action] = [
            Note(
                f"{prefix}: no link group is whole, its packets take all ports that still "
                f"lead there"
            )
            for prefix in sorted(self._asymmetric - was)
        ]
        return notes + [
            Note(f"{prefix}: a whole link group again") for prefix in sorted(was - self._asymmetric)
        ]

    def _agree(self) -> list[Action]:
        """Take the state that this switch and those that choose alike call for together."""
        wants = [self._want]
        for origin, (notice, *_) in self._crowding.held.items():
            if self._alike(self._shape.place(origin)) and isinstance(notice.body, Crowding):
                wants.append(notice.body.state)
        state = lbsp.agreed(wants)
        if state == self._state:
            return []
        self._state = state
        return [SetQueueState(state)]

    def _alike(self, other: SwitchPosition) -> bool:
        """Whether an aggregation switch chooses as this one does, for it carries the same flows."""
        tier, pod, number = self._place
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


def covering(prefix: Prefix, table: Iterable[Prefix]) -> Prefix:
    """The longest of `table` that holds all of `prefix`."""
    return max(
        (one for one in table if one.length <= prefix.length and one.holds(prefix.network)),
        key=lambda one: one.length,
    )


def _says_nothing(body: LbspBody) -> bool:
    return not (body.failures if isinstance(body, Failures) else body.state)
