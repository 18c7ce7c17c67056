"""State machine for fixed candidate routes: each route keeps its live hops.

A hop to a router is live while the neighbour is up.  A hop to a host, which runs no daemon, is live
while the port has a carrier.

When a route is set, routes to longer prefixes within it that were never set become unreachable.
Otherwise packets for them would follow the shorter prefix back to their origin.

Its base sends hellos; what follows from them is up to each machine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from weft.daemons.control.hello import HelloOutcome, NeighbourChanged, Neighbourhood
from weft.daemons.core import wire
from weft.daemons.core.actions import NOTHING, UNCHANGED, Action, Hop, SetRoute
from weft.daemons.core.contract import Adjacencies, DaemonEvent, useless
from weft.topologies.core.address import Prefix


class HelloMachine(ABC):
    """State machine of the node of `neighbourhood`; it uses hellos only, and no events."""

    def __init__(self, neighbourhood: Neighbourhood) -> None:
        self.node = neighbourhood.node
        self._neighbourhood = neighbourhood

    @abstractmethod
    def _follow(self, outcomes: Iterable[HelloOutcome], now: float) -> list[Action]:
        """Return the actions in `outcomes`, and those that changes of neighbours require."""

    def _hello(self, hello: wire.Hello, payload: bytes, port: int, now: float) -> Sequence[Action]:
        """Handle a hello with news, encoded in `payload`."""
        return self._follow(self._neighbourhood.receive(hello, payload, port, now), now)

    def _other(
        self, message: wire.DaemonMessage | None, payload: bytes, port: int, now: float
    ) -> Sequence[Action]:
        """Handle another message; None if its type is none of wire.py."""
        return NOTHING

    @property
    def deadline(self) -> float:
        return self._neighbourhood.deadline

    def start(self, now: float) -> Sequence[Action]:
        return self._follow(self._neighbourhood.start(now), now)

    def receive(self, payload: bytes, port: int, now: float) -> Sequence[Action]:
        if self._neighbourhood.refresh(payload, port, now):
            return UNCHANGED
        message = wire.decode(payload)
        if isinstance(message, wire.Hello):
            return self._hello(message, payload, port, now)
        return self._other(message, payload, port, now)

    def link_changed(self, port: int, up: bool, now: float) -> Sequence[Action]:
        return self._follow(self._neighbourhood.link_changed(port, up, now), now)

    def event(self, event: DaemonEvent, now: float) -> Sequence[Action]:
        raise useless(event)

    def tick(self, now: float) -> Sequence[Action]:
        return self._follow(self._neighbourhood.tick(now), now)

    def slow_down(self, factor: int, now: float) -> Sequence[Action]:
        return self._follow(self._neighbourhood.slow_down(factor, now), now)

    def converged(self) -> bool:
        return self._neighbourhood.complete()

    def adjacencies(self) -> Adjacencies:
        return self._neighbourhood.adjacencies()

    def status(self) -> dict[str, Any]:
        return self._neighbourhood.status()


class LiveRoutes(HelloMachine):
    """State machine that sets each of `candidates` to its live hops.

    With `first_only` the hops of a route are in order of preference, and the first live one is set.
    """

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        candidates: Sequence[tuple[Prefix, tuple[Hop, ...]]],
        *,
        first_only: bool = False,
    ) -> None:
        super().__init__(neighbourhood)
        self._most = 1 if first_only else None
        self._candidates = dict(candidates)
        self._using: dict[Hop, list[Prefix]] = {}
        for prefix, hops in candidates:
            for hop in hops:
                self._using.setdefault(hop, []).append(prefix)
        watched = {neighbour.hop for neighbour in neighbourhood.neighbours()}
        self._unwatched = [hop for hop in self._using if hop not in watched]
        self._alive = set(self._unwatched)
        self._set: set[Prefix] = set()  # prefixes whose route was set, with hops or without
        self._within = _nested(self._candidates)

    def start(self, now: float) -> Sequence[Action]:
        return [*self._set_routes(self._unwatched), *super().start(now)]

    def link_changed(self, port: int, up: bool, now: float) -> Sequence[Action]:
        changed = [
            hop for hop in self._unwatched if hop.port == port and (hop in self._alive) != up
        ]
        (self._alive.update if up else self._alive.difference_update)(changed)
        return [*self._set_routes(changed), *super().link_changed(port, up, now)]

    def converged(self) -> bool:
        return super().converged() and self._alive.issuperset(self._using)

    def lives(self, hop: Hop) -> bool:
        """Return True if `hop` of any route is live."""
        return hop in self._alive

    def status(self) -> dict[str, Any]:
        lost = [
            str(prefix) for prefix, hops in self._candidates.items() if self._alive.isdisjoint(hops)
        ]
        return {
            **super().status(),
            "routes": len(self._candidates) - len(lost),
            "routes_lost": lost,
        }

    def _follow(self, events: Iterable[HelloOutcome], now: float) -> list[Action]:
        """Return the changes of routes that follow from `events`, then the other actions."""
        changed: list[Hop] = []
        actions: list[Action] = []
        for event in events:
            if isinstance(event, NeighbourChanged):
                changed.append(event.hop)
                (self._alive.add if event.up else self._alive.discard)(event.hop)
            else:
                actions.append(event)
        return self._set_routes(changed) + actions if changed else actions

    def _set_routes(self, changed: Iterable[Hop]) -> list[Action]:
        """Return the routes that use a hop in `changed`, with their live hops."""
        prefixes = dict.fromkeys(prefix for hop in changed for prefix in self._using.get(hop, ()))
        self._set.update(prefixes)
        longer = dict.fromkeys(
            inner for prefix in prefixes for inner in self._within.get(prefix, ())
        )
        unset = [prefix for prefix in longer if prefix not in self._set]
        self._set.update(unset)
        actions: list[Action] = [SetRoute(prefix, (), unless_set=True) for prefix in unset]
        actions += [SetRoute(prefix, self._hops_to_set(prefix)) for prefix in prefixes]
        return actions

    def _hops_to_set(self, prefix: Prefix) -> tuple[Hop, ...]:
        live = tuple(hop for hop in self._candidates[prefix] if hop in self._alive)
        return live[: self._most]


def _nested(prefixes: Iterable[Prefix]) -> dict[Prefix, list[Prefix]]:
    """Return the longer prefixes within each of `prefixes` that has any."""
    known = set(prefixes)
    lengths = {prefix.length for prefix in known}
    inner: dict[Prefix, list[Prefix]] = {}
    for prefix in known:
        for length in lengths:
            shift = 32 - length
            outer = Prefix(prefix.network >> shift << shift, length)
            if length < prefix.length and outer in known:
                inner.setdefault(outer, []).append(prefix)
    return inner
