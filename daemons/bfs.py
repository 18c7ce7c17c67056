"""Shortest paths over the links that live, known to all by link state: the adaptive yard-stick of the other schemes.

What was learnt is turned into routes `hold_s` after the first change, and no sooner than five times that after the last
time, so that what many nodes report costs few computations; and only routes that change are set.  Where several
neighbours are on shortest paths, a route has them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

from daemons import wire
from daemons.hello import Event, NeighbourChanged, Neighbourhood
from daemons.linkstate import Database
from daemons.protocol import NOTHING, Action, Adjacencies, Hop, SetRoute
from daemons.routing import shortest
from topologies.address import Prefix


class Bfs:
    """A RoutingProtocol for the node of `neighbourhood` and `database`.

    destinations: prefixes, each with the node that it leads to.
    local: prefixes of this node's own hosts, each with its hop, which lives while its port has a carrier.
    """

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        database: Database,
        destinations: Sequence[tuple[Prefix, int]],
        local: Sequence[tuple[Prefix, tuple[Hop, ...]]] = (),
        *,
        hold_s: float,
    ) -> None:
        self._neighbourhood = neighbourhood
        self._database = database
        self._node = database.node
        self._destinations = [(prefix, node) for prefix, node in destinations if node != self._node]
        self._local = dict(local)
        self._hold_s = hold_s
        self._compute_s, self._rested_s = inf, -inf  # when to compute next, and when that may be at the earliest
        self._computed = 0  # the database.changes that the routes know of
        self._routes: dict[Prefix, tuple[Hop, ...]] = {}  # as set, none for those that were never
        self._counters = {"computations": 0, "garbage": 0}

    @property
    def deadline(self) -> float:
        return min(self._neighbourhood.deadline, self._database.deadline, self._compute_s)

    def start(self, now: float) -> Sequence[Action]:
        actions: list[Action] = [SetRoute(prefix, hops) for prefix, hops in self._local.items()]
        return actions + self._follow([*self._database.start(now), *self._neighbourhood.start(now)], now)

    def receive(self, payload: bytes, port: int, now: float) -> Sequence[Action]:
        if self._neighbourhood.refresh(payload, port, now):
            return NOTHING
        try:
            message = wire.decode(payload)
        except wire.Garbage:
            self._counters["garbage"] += 1
            return NOTHING
        if isinstance(message, wire.LinkStates | wire.Summary):
            return self._follow(self._database.receive(message, port, now), now)
        if not isinstance(message, wire.Hello):
            return NOTHING
        actions = self._follow(self._neighbourhood.receive(message, payload, port, now), now)
        hop = Hop(port, message.sender)
        return actions + self._follow(self._database.heard_digest(hop, self._neighbourhood.digest(hop), now), now)

    def link_changed(self, port: int, up: bool, now: float) -> Sequence[Action]:
        own = [prefix for prefix, hops in self._local.items() if hops[0].port == port]
        actions: list[Action] = [SetRoute(prefix, self._local[prefix] if up else ()) for prefix in own]
        return actions + self._follow(self._neighbourhood.link_changed(port, up, now), now)

    def tick(self, now: float) -> Sequence[Action]:
        events: list[Event] = []
        if now >= self._neighbourhood.deadline:
            events += self._neighbourhood.tick(now)
        if now >= self._database.deadline:
            events += self._database.tick(now)
        actions = self._follow(events, now)
        return actions + self._compute(now) if now >= self._compute_s else actions

    def converged(self) -> bool:
        complete = self._neighbourhood.complete() and self._database.agreed() and self._compute_s == inf
        return complete and all(self._routes.get(prefix) for prefix, _ in self._destinations)

    def adjacencies(self) -> Adjacencies:
        return self._neighbourhood.adjacencies()

    def status(self) -> dict[str, Any]:
        lost = [str(prefix) for prefix, _ in self._destinations if not self._routes.get(prefix)]
        return {
            **self._neighbourhood.status(),
            **self._database.status(),
            "routes": len(self._local) + len(self._destinations) - len(lost),
            "routes_lost": lost,
            **self._counters,
        }

    def _follow(self, events: Iterable[Event], now: float) -> list[Action]:
        """Tell the database what `events` say, the neighbours its digest, and do the rest."""
        actions: list[Action] = []
        for event in events:
            if isinstance(event, NeighbourChanged):
                digest = self._neighbourhood.digest(event.hop)
                actions += self._database.neighbour_changed(event.hop, event.up, digest, now)
            else:
                actions.append(event)
        self._neighbourhood.set_digest(self._database.digest)
        if self._database.changes != self._computed and self._compute_s == inf:
            self._compute_s = max(now + self._hold_s, self._rested_s)
        return actions

    def _compute(self, now: float) -> list[Action]:
        """The routes that have changed."""
        self._compute_s, self._rested_s = inf, now + 5 * self._hold_s
        self._computed = self._database.changes
        self._counters["computations"] += 1
        up: dict[int, list[Hop]] = {}
        for neighbour in self._neighbourhood.neighbours():
            if neighbour.up:
                up.setdefault(neighbour.hop.node, []).append(neighbour.hop)
        towards = shortest.next_hops(self._database.graph(), self._node)
        hops = {node: tuple(hop for near in nears for hop in up.get(near, ())) for node, nears in towards.items()}
        actions: list[Action] = []
        for prefix, node in self._destinations:
            wanted = hops.get(node, ())
            if self._routes.get(prefix, ()) != wanted:
                self._routes[prefix] = wanted
                actions.append(SetRoute(prefix, wanted))
        return actions
