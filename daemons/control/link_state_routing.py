"""Base of link-state protocols: hellos, flooding of changes, and computation of routes.

Routes are computed `hold_s` after the first change.  While changes go on, the time between two
computations grows.  Two late computations in a row show that the machine is too slow for its
daemons: the next one waits LATE times the smaller lateness.  A single one shows a pause, and routes
must be corrected soon after it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

from weft.daemons.control.candidate_routes import HelloMachine
from weft.daemons.control.hello import HelloOutcome, NeighbourChanged, Neighbourhood
from weft.daemons.control.link_state import Database, backoff
from weft.daemons.core import wire
from weft.daemons.core.actions import NOTHING, Action, Hop

LATE = 2  # shortest wait after two late computations, in the smaller lateness


class Flooding(HelloMachine):
    """State machine of one node without its computation of routes."""

    def __init__(self, neighbourhood: Neighbourhood, database: Database, *, hold_s: float) -> None:
        super().__init__(neighbourhood)
        self._database = database
        self._node = database.node
        self._hold_s = hold_s
        self._compute_s = inf  # time of the next computation
        self._computed_s = -inf  # time of the last one
        self._late_s = 0.0  # lateness of the last one
        self._rest_s = 5 * hold_s  # shortest time between two
        self._computed = 0  # database.changes at the last one
        self._counters = {"computations": 0}

    @abstractmethod
    def _routes_now(self) -> list[Action]:
        """Return the changes of routes that neighbourhood and database require."""

    def _leave(self, hop: Hop) -> list[Action]:
        """Return immediate actions for a neighbour that went down, before a computation."""
        return []

    @property
    def deadline(self) -> float:
        return min(super().deadline, self._database.deadline, self._compute_s)

    def start(self, now: float) -> Sequence[Action]:
        return [*self._follow(self._database.start(now), now), *super().start(now)]

    def _hello(self, hello: wire.Hello, payload: bytes, port: int, now: float) -> Sequence[Action]:
        actions = super()._hello(hello, payload, port, now)
        hop = Hop(port, hello.sender)
        messages = self._database.heard_digest(hop, self._neighbourhood.digest(hop), now)
        return [*actions, *self._follow(messages, now)]

    def _other(
        self, message: wire.DaemonMessage | None, payload: bytes, port: int, now: float
    ) -> Sequence[Action]:
        if not isinstance(message, wire.LinkStates | wire.Summary):
            return NOTHING
        return self._follow(self._database.receive(message, port, now), now)

    def tick(self, now: float) -> Sequence[Action]:
        events: list[HelloOutcome] = []
        if now >= self._neighbourhood.deadline:
            events += self._neighbourhood.tick(now)
        if now >= self._database.deadline:
            events += self._database.tick(now)
        actions = self._follow(events, now)
        if now >= self._compute_s:
            late_s, before_s = now - self._compute_s, self._late_s
            self._late_s = late_s
            self._rest_s = max(
                backoff(self._rest_s, now - self._computed_s, 5 * self._hold_s),
                LATE * min(late_s, before_s),
            )
            self._compute_s = inf
            self._computed_s = now
            self._computed = self._database.changes
            self._counters["computations"] += 1
            actions += self._routes_now()
        return actions

    def converged(self) -> bool:
        return super().converged() and self._database.agreed() and self._compute_s == inf

    def status(self) -> dict[str, Any]:
        return {**super().status(), **self._database.status(), **self._counters}

    def _follow(self, events: Iterable[HelloOutcome], now: float) -> list[Action]:
        """Pass `events` to the database; return its messages and the other actions."""
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
