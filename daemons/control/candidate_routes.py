"""Routes that are given, kept to the hops that live: what a scheme is whose paths do not depend on
failures.

A hop through a port that carries hellos lives while the neighbour is up; a hop through another
port, to a host that runs no daemon, while the port has a carrier.  A route keeps those of its hops
that live, and has none when none does.

Where a route is set before one to a longer prefix within its own, that one is made unreachable, so
that packets do not follow the shorter prefix back to where they came from until the neighbour that
they are for is up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft.daemons.control.hello import HelloOutcome, NeighbourChanged, Neighbourhood
from weft.daemons.core import wire
from weft.daemons.core.actions import NOTHING, UNCHANGED, Action, Hop, SetRoute
from weft.daemons.core.contract import Adjacencies, useless
from weft.daemons.core.events import DaemonEvent
from weft.topologies.core.address import Prefix


class LiveRoutes:
    """A state machine that sets, for each of `candidates`, the hops that live."""

    def __init__(
        self, neighbourhood: Neighbourhood, candidates: Sequence[tuple[Prefix, tuple[Hop, ...]]]
    ) -> None:
        self._neighbourhood = neighbourhood
        self._candidates = dict(candidates)
        self._using: dict[Hop, list[Prefix]] = {}
        for prefix, hops in candidates:
            for hop in hops:
                self._using.setdefault(hop, []).append(prefix)
        watched = {neighbour.hop for neighbour in neighbourhood.neighbours()}
        self._unwatched = [hop for hop in self._using if hop not in watched]
        self._alive = set(self._unwatched)
        self._set: set[Prefix] = set()  # routes that were set, to somebody or nobody
        self._within = _nested(self._candidates)

    @property
    def deadline(self) -> float:
        return self._neighbourhood.deadline

    def start(self, now: float) -> Sequence[Action]:
        return self._set_routes(self._unwatched) + self._follow(self._neighbourhood.start(now))

    def receive(self, payload: bytes, port: int, now: float) -> Sequence[Action]:
        if self._neighbourhood.refresh(payload, port, now):
            return UNCHANGED
        message = wire.decode(payload)
        if not isinstance(message, wire.Hello):
            return NOTHING
        return self._follow(self._neighbourhood.receive(message, payload, port, now))

    def link_changed(self, port: int, up: bool, now: float) -> Sequence[Action]:
        changed = [
            hop for hop in self._unwatched if hop.port == port and (hop in self._alive) != up
        ]
        (self._alive.update if up else self._alive.difference_update)(changed)
        return self._set_routes(changed) + self._follow(
            self._neighbourhood.link_changed(port, up, now)
        )

    def event(self, event: DaemonEvent, now: float) -> Sequence[Action]:
        raise useless(event)

    def tick(self, now: float) -> Sequence[Action]:
        return self._follow(self._neighbourhood.tick(now))

    def converged(self) -> bool:
        return self._neighbourhood.complete() and self._alive.issuperset(self._using)

    def lives(self, hop: Hop) -> bool:
        """Whether `hop`, of any route, can be used now."""
        return hop in self._alive

    def adjacencies(self) -> Adjacencies:
        return self._neighbourhood.adjacencies()

    def status(self) -> dict[str, Any]:
        lost = [
            str(prefix) for prefix, hops in self._candidates.items() if self._alive.isdisjoint(hops)
        ]
        return {
            **self._neighbourhood.status(),
            "routes": len(self._candidates) - len(lost),
            "routes_lost": lost,
        }

    def _follow(self, events: Iterable[HelloOutcome]) -> list[Action]:
        """Set the routes that `events` change, and then do the rest of them."""
        changed: list[Hop] = []
        rest: list[Action] = []
        for event in events:
            if isinstance(event, NeighbourChanged):
                changed.append(event.hop)
                (self._alive.add if event.up else self._alive.discard)(event.hop)
            else:
                rest.append(event)
        return self._set_routes(changed) + rest if changed else rest

    def _set_routes(self, changed: Iterable[Hop]) -> list[Action]:
        """Every route that uses a hop in `changed`, as it is now."""
        prefixes = dict.fromkeys(prefix for hop in changed for prefix in self._using.get(hop, ()))
        self._set.update(prefixes)
        within = dict.fromkeys(each for prefix in prefixes for each in self._within.get(prefix, ()))
        unset = [prefix for prefix in within if prefix not in self._set]
        self._set.update(unset)
        actions: list[Action] = [SetRoute(prefix, (), unless_set=True) for prefix in unset]
        actions += [
            SetRoute(prefix, tuple(hop for hop in self._candidates[prefix] if hop in self._alive))
            for prefix in prefixes
        ]
        return actions


def _nested(prefixes: Iterable[Prefix]) -> dict[Prefix, list[Prefix]]:
    """Those of `prefixes` that have others of them within, and which."""
    known = set(prefixes)
    lengths = {prefix.length for prefix in known}
    found: dict[Prefix, list[Prefix]] = {}
    for prefix in known:
        for length in lengths:
            shift = 32 - length
            if (
                length < prefix.length
                and (outer := Prefix(prefix.network >> shift << shift, length)) in known
            ):
                found.setdefault(outer, []).append(prefix)
    return found
