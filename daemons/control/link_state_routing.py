"""What protocols that route by link state have in common: they say hello, flood what changed, and
compute.

What was learnt is turned into routes `hold_s` after the first change.  While changes go on, the
time between two computations grows, so that what many nodes report costs few of them.  A
computation that begins late shows that the machine is too slow for its daemons: the next one waits
LATE times as long as this one was late.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

from weft.daemons.control.hello import HelloOutcome, NeighbourChanged, Neighbourhood
from weft.daemons.control.link_state import Database, backoff
from weft.daemons.core import wire
from weft.daemons.core.actions import NOTHING, UNCHANGED, Action, Hop
from weft.daemons.core.contract import Adjacencies, useless
from weft.daemons.core.events import DaemonEvent

LATE = 2  # rest after a computation, in its lateness


class Flooding(ABC):
    """A state machine for the node of `neighbourhood` and `database`, less what it makes of
    them."""

    def __init__(self, neighbourhood: Neighbourhood, database: Database, *, hold_s: float) -> None:
        self._neighbourhood = neighbourhood
        self._database = database
        self._node = database.node
        self._hold_s = hold_s
        self._compute_s = inf  # when to compute next
        self._computed_s = -inf  # when that was last
        self._rest_s = 5 * hold_s  # how long until the next at the least
        self._computed = 0  # the database.changes that the routes know of
        self._counters = {"computations": 0}

    @abstractmethod
    def _routes_now(self) -> list[Action]:
        """What has to change, as neighbourhood and database are."""

    def _leave(self, hop: Hop) -> list[Action]:
        """What can be done at once about a neighbour that is up no longer, before others know."""
        return []

    @property
    def deadline(self) -> float:
        return min(self._neighbourhood.deadline, self._database.deadline, self._compute_s)

    def start(self, now: float) -> Sequence[Action]:
        return self._follow([*self._database.start(now), *self._neighbourhood.start(now)], now)

    def receive(self, payload: bytes, port: int, now: float) -> Sequence[Action]:
        if self._neighbourhood.refresh(payload, port, now):
            return UNCHANGED
        message = wire.decode(payload)
        if isinstance(message, wire.LinkStates | wire.Summary):
            return self._follow(self._database.receive(message, port, now), now)
        if not isinstance(message, wire.Hello):
            return NOTHING
        actions = self._follow(self._neighbourhood.receive(message, payload, port, now), now)
        hop = Hop(port, message.sender)
        return actions + self._follow(
            self._database.heard_digest(hop, self._neighbourhood.digest(hop), now), now
        )

    def link_changed(self, port: int, up: bool, now: float) -> Sequence[Action]:
        return self._follow(self._neighbourhood.link_changed(port, up, now), now)

    def event(self, event: DaemonEvent, now: float) -> Sequence[Action]:
        raise useless(event)

    def tick(self, now: float) -> Sequence[Action]:
        events: list[HelloOutcome] = []
        if now >= self._neighbourhood.deadline:
            events += self._neighbourhood.tick(now)
        if now >= self._database.deadline:
            events += self._database.tick(now)
        actions = self._follow(events, now)
        if now >= self._compute_s:
            late_s = now - self._compute_s
            self._rest_s = max(
                backoff(self._rest_s, now - self._computed_s, 5 * self._hold_s), LATE * late_s
            )
            self._compute_s, self._computed_s = inf, now
            self._computed = self._database.changes
            self._counters["computations"] += 1
            actions += self._routes_now()
        return actions

    def converged(self) -> bool:
        return self._neighbourhood.complete() and self._database.agreed() and self._compute_s == inf

    def adjacencies(self) -> Adjacencies:
        return self._neighbourhood.adjacencies()

    def status(self) -> dict[str, Any]:
        return {**self._neighbourhood.status(), **self._database.status(), **self._counters}

    def _follow(self, events: Iterable[HelloOutcome], now: float) -> list[Action]:
        """Tell the database what `events` say, the neighbours its digest, and do the rest."""
        actions: list[Action] = []
        for event in events:
            if isinstance(event, NeighbourChanged):
                digest = self._neighbourhood.digest(event.hop)
                if not event.up:
                    actions += self._leave(event.hop)
                actions += self._database.neighbour_changed(event.hop, event.up, digest, now)
            else:
                actions.append(event)
        self._neighbourhood.set_digest(self._database.digest)
        if self._database.changes != self._computed and self._compute_s == inf:
            self._compute_s = max(now + self._hold_s, self._computed_s + self._rest_s)
        return actions
