"""The flows that pass one TAR server: where each goes, for how long still, and what they leave of
its two links."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

from weft.daemons.core.actions import FiveTuple, Hop

SUPERSEDED = 4  # entries for each that counts, and the queue is cleared of those that count no more


class FlowState(NamedTuple):
    """A flow at one server: its path, this server's place on it, the token of the probe that found
    it, the next hop, and when it expires."""

    path: tuple[int, ...]
    at: int
    token: int
    hop: Hop
    expires_s: float


class States:
    """The state of each flow on whose path this server is, and the virtual flows: those that it
    bypassed, and whose path it therefore left (daemons/tar/routing.py).

    capacity_kbps: of each link.
    gain_kbps: bandwidth that a bypass must gain, so that hellos and one packet more or less do not
        decide.
    most: flows that have a state here, and virtual ones, each.  Further virtual ones are not
        counted.

    Ours: a flow is taken to have an equal share of what its link carries, a virtual one the mean of
    those that pass; a flow's own share is left out when it is set up again.
    """

    def __init__(self, *, capacity_kbps: int, gain_kbps: int, most: int = 4096) -> None:
        self.capacity_kbps, self._gain_kbps, self._most = capacity_kbps, gain_kbps, most
        self._states: dict[FiveTuple, FlowState] = {}
        self._virtual: dict[FiveTuple, float] = {}  # when each expires
        self._expiring: list[tuple[float, FiveTuple]] = []  # states; may hold superseded entries
        self._fading: list[tuple[float, FiveTuple]] = []  # virtual flows; likewise
        self._leaving = [0, 0]  # flows by port
        self.loads: Mapping[int, int] = {}

    def __len__(self) -> int:
        return len(self._states)

    def have_room(self) -> bool:
        """Whether there may be one more."""
        return len(self._states) < self._most

    @property
    def deadline(self) -> float:
        """When the next state may have expired."""
        return self._expiring[0][0] if self._expiring else inf

    def virtual(self, now: float) -> int:
        """How many virtual flows there are."""
        while self._fading and self._fading[0][0] <= now:
            _, flow = heappop(self._fading)
            if self._virtual.get(flow, inf) <= now:
                del self._virtual[flow]
        return len(self._virtual)

    def get(self, flow: FiveTuple) -> FlowState | None:
        return self._states.get(flow)

    def put(self, flow: FiveTuple, state: FlowState) -> bool:
        """Remember it; whether the flow's next hop has changed."""
        before = self._states.get(flow)
        if before:
            self._leaving[before.hop.port] -= 1
        self._states[flow] = state
        self._leaving[state.hop.port] += 1
        heappush(self._expiring, (state.expires_s, flow))
        if len(self._expiring) > SUPERSEDED * (len(self._states) + SUPERSEDED):
            self._expiring = [(each.expires_s, known) for known, each in self._states.items()]
            heapify(self._expiring)
        return before is None or before.hop != state.hop

    def forget(self, flow: FiveTuple) -> None:
        self._leaving[self._states.pop(flow).hop.port] -= 1

    def bypassed(self, flow: FiveTuple, expires_s: float) -> None:
        """A probe of `flow` came by level 0, and this server bypassed its link and left the
        path."""
        if flow not in self._virtual and len(self._virtual) >= self._most:
            return
        self._virtual[flow] = expires_s
        heappush(self._fading, (expires_s, flow))
        if len(self._fading) > SUPERSEDED * (len(self._virtual) + SUPERSEDED):
            self._fading = [(until_s, known) for known, until_s in self._virtual.items()]
            heapify(self._fading)

    def passed(self, flow: FiveTuple) -> None:
        """A probe of `flow` was passed on, and this server stays on the path."""
        self._virtual.pop(flow, None)

    def expired(self, now: float) -> Iterator[FiveTuple]:
        """Flows whose state has expired."""
        while self._expiring and self._expiring[0][0] <= now:
            _, flow = heappop(self._expiring)
            if (state := self._states.get(flow)) and state.expires_s <= now:
                yield flow

    def by(self, hops: Collection[Hop]) -> list[tuple[FiveTuple, FlowState]]:
        """Those that go by any of `hops`."""
        return [(flow, state) for flow, state in self._states.items() if state.hop in hops]

    def available(self, flow: FiveTuple, alive: Collection[int], now: float) -> tuple[int, int]:
        """What real and virtual flows other than `flow` leave of the level-0 link, less what a
        bypass must gain, and of the other one, in kbit/s; 0 of one whose port is not in `alive`."""
        loads = [self.loads.get(port, 0) for port in (0, 1)]
        mean = sum(loads) // max(1, sum(self._leaving))
        virtual = self.virtual(now) - (flow in self._virtual)
        if own := self._states.get(flow):
            loads[own.hop.port] -= loads[own.hop.port] // max(1, self._leaving[own.hop.port])
        loads[0] += virtual * mean + self._gain_kbps
        left = [max(1, self.capacity_kbps - load) for load in loads]
        return left[0] if 0 in alive else 0, left[1] if 1 in alive else 0
