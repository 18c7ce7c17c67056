"""Flows that pass one TAR server: next hop and expiry of each, and the bandwidth they leave."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

from weft.daemons.core.actions import FiveTuple, Hop

SUPERSEDED = 4  # ratio of queue entries to valid ones at which a queue is rebuilt


class FlowState(NamedTuple):
    """A flow at one server.

    path: the flow's path.
    position: position of this server on it.
    token: number of the probe that set it up.
    hop: next hop.
    expires_s: time of expiry.
    """

    path: tuple[int, ...]
    position: int
    token: int
    hop: Hop
    expires_s: float


class FlowStates:
    """Flows whose path includes this server, and virtual flows.

    This server left the path of a virtual flow when it bypassed it (daemons/tar/routing.py).

    The paper leaves the rate of a flow open.  We give each flow an equal share of its link's load,
    and a virtual flow the mean of the passing flows.  A flow's own share does not count when its
    path is set up again.

    capacity_kbps: capacity of each link.
    gain_kbps: bandwidth that a bypass must gain, so that hellos or a single packet do not decide.
    most: maximum number of flows, and of virtual flows; further virtual flows do not count.
    """

    def __init__(self, *, capacity_kbps: int, gain_kbps: int, most: int = 4096) -> None:
        self.capacity_kbps = capacity_kbps
        self._gain_kbps = gain_kbps
        self._most = most
        self._states: dict[FiveTuple, FlowState] = {}
        self._virtual: dict[FiveTuple, float] = {}  # virtual flows and their times of expiry
        # heaps by time of expiry; an entry is superseded when its flow's state is renewed
        self._expiring: list[tuple[float, FiveTuple]] = []
        self._expiring_virtual: list[tuple[float, FiveTuple]] = []
        self._flows_by_port = [0, 0]
        self.loads: Mapping[int, int] = {}

    def __len__(self) -> int:
        return len(self._states)

    def have_room(self) -> bool:
        """Return True if another flow may have a state."""
        return len(self._states) < self._most

    @property
    def deadline(self) -> float:
        """Return the earliest time at which a state may expire."""
        return self._expiring[0][0] if self._expiring else inf

    def virtual(self, now: float) -> int:
        """Return the number of virtual flows."""
        while self._expiring_virtual and self._expiring_virtual[0][0] <= now:
            _, flow = heappop(self._expiring_virtual)
            if self._virtual.get(flow, inf) <= now:
                del self._virtual[flow]
        return len(self._virtual)

    def get(self, flow: FiveTuple) -> FlowState | None:
        return self._states.get(flow)

    def put(self, flow: FiveTuple, state: FlowState) -> bool:
        """Set the state of `flow`; return True if its next hop has changed."""
        previous = self._states.get(flow)
        if previous:
            self._flows_by_port[previous.hop.port] -= 1
        self._states[flow] = state
        self._flows_by_port[state.hop.port] += 1
        heappush(self._expiring, (state.expires_s, flow))
        if len(self._expiring) > SUPERSEDED * (len(self._states) + SUPERSEDED):
            self._expiring = [(valid.expires_s, known) for known, valid in self._states.items()]
            heapify(self._expiring)
        return previous is None or previous.hop != state.hop

    def forget(self, flow: FiveTuple) -> None:
        self._flows_by_port[self._states.pop(flow).hop.port] -= 1

    def bypassed(self, flow: FiveTuple, expires_s: float) -> None:
        """Count `flow` as virtual: its probe came by level 0, and this server left the path."""
        if flow not in self._virtual and len(self._virtual) >= self._most:
            return
        self._virtual[flow] = expires_s
        heappush(self._expiring_virtual, (expires_s, flow))
        if len(self._expiring_virtual) > SUPERSEDED * (len(self._virtual) + SUPERSEDED):
            self._expiring_virtual = [(end_s, known) for known, end_s in self._virtual.items()]
            heapify(self._expiring_virtual)

    def passed(self, flow: FiveTuple) -> None:
        """Count `flow` as virtual no more: this server stays on its path."""
        self._virtual.pop(flow, None)

    def expired(self, now: float) -> Iterator[FiveTuple]:
        """Yield the flows whose state has expired."""
        while self._expiring and self._expiring[0][0] <= now:
            _, flow = heappop(self._expiring)
            if (state := self._states.get(flow)) and state.expires_s <= now:
                yield flow

    def by(self, hops: Collection[Hop]) -> list[tuple[FiveTuple, FlowState]]:
        """Return the flows whose next hop is in `hops`."""
        return [(flow, state) for flow, state in self._states.items() if state.hop in hops]

    def available(self, flow: FiveTuple, alive: Collection[int], now: float) -> tuple[int, int]:
        """Return the bandwidth that other flows than `flow` leave, real and virtual, in kbit/s.

        The level-0 link first, less the gain that a bypass needs, then the other link; 0 for a link
        whose port is not in `alive`.
        """
        loads = [self.loads.get(port, 0) for port in (0, 1)]
        mean = sum(loads) // max(1, sum(self._flows_by_port))
        virtual = self.virtual(now) - (flow in self._virtual)
        if own := self._states.get(flow):
            loads[own.hop.port] -= loads[own.hop.port] // max(1, self._flows_by_port[own.hop.port])
        loads[0] += virtual * mean + self._gain_kbps
        free = [max(1, self.capacity_kbps - load) for load in loads]
        return free[0] if 0 in alive else 0, free[1] if 1 in alive else 0
