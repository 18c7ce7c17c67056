"""The flows that pass one TAR server: where each goes, how long still, and what is left of the server's two links."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from daemons.core.contract import Flow, Hop


class State(NamedTuple):
    """A flow at one server: its path, this server's place on it, the token of the probe that found it, the next hop,
    and whether it is booked on the level-0 link too."""

    path: tuple[int, ...]
    at: int
    token: int
    hop: Hop
    virtual: bool
    expires_s: float


class States:
    """The state of each flow, and the books.

    capacity_kbps: of each link.
    gain_kbps: what a bypass must gain.
    """

    def __init__(self, *, capacity_kbps: int, gain_kbps: int) -> None:
        self._capacity_kbps, self._gain_kbps = capacity_kbps, gain_kbps
        self._states: dict[Flow, State] = {}
        self._expiring: list[tuple[float, Flow]] = []  # old thoughts among them
        self._leaving = [0, 0]  # flows by port
        self._virtual = 0
        self.loads: Mapping[int, int] = {}

    def __len__(self) -> int:
        return len(self._states)

    @property
    def deadline(self) -> float:
        """When the next one may have expired."""
        return self._expiring[0][0] if self._expiring else inf

    def get(self, flow: Flow) -> State | None:
        return self._states.get(flow)

    def put(self, flow: Flow, state: State) -> bool:
        """Remember it; whether the flow's next hop has changed."""
        before = self._states.get(flow)
        if before:
            self._count(before, -1)
        self._states[flow] = state
        self._count(state, 1)
        heappush(self._expiring, (state.expires_s, flow))
        return before is None or before.hop != state.hop

    def forget(self, flow: Flow) -> None:
        self._count(self._states.pop(flow), -1)

    def expired(self, now: float) -> Iterator[Flow]:
        """Flows whose time has come."""
        while self._expiring and self._expiring[0][0] <= now:
            _, flow = heappop(self._expiring)
            if (state := self._states.get(flow)) and state.expires_s <= now:
                yield flow

    def by(self, hops: Collection[Hop]) -> list[tuple[Flow, State]]:
        """Those that go by any of `hops`."""
        return [(flow, state) for flow, state in self._states.items() if state.hop in hops]

    def available(self, flow: Flow, alive: Collection[int]) -> tuple[int, int]:
        """What is left for `flow` of the level-0 link, less what a bypass must gain, and of the other one, in kbit/s; 0
        of one whose port is not in `alive`."""
        load, load_link = (self.loads.get(port, 0) for port in (0, 1))
        share, share_link = load // max(1, self._leaving[0]), load_link // max(1, self._leaving[1])
        load += share_link * self._virtual
        if own := self._states.get(flow):
            if own.hop.port == 0:
                load -= share
            else:
                load_link -= share_link
                load -= share_link * own.virtual
        left = [max(1, self._capacity_kbps - each) for each in (load + self._gain_kbps, load_link)]
        return (left[0] if 0 in alive else 0, left[1] if 1 in alive else 0)

    def _count(self, state: State, change: int) -> None:
        self._leaving[state.hop.port] += change
        self._virtual += change * state.virtual
