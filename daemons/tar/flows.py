"""Flows at one TAR server: states of those that pass it, and probes of its own.

A state has next hop and expiry of a flow; together they tell the bandwidth that is left.

A flow of the server's own is probed at once when it begins, then every `refresh_s`, or less often
if `refreshes_per_s` requires it.  After an answer without a path, the next attempt draws other
relays; after ATTEMPTS of them the source waits for one refresh interval.  Without an answer within
a few round trips, at most `probe_s`, the source probes again, and doubles its timeout each time.

A source sends `probes_per_s` probes at most.  The most recently used flow without a path goes
first.  A flow unused for ACTIVE_S is probed once more, which keeps its path until the flow would be
forgotten, and again when it resumes.  This matters when hundreds of paths break at once: each costs
servers ten or more messages, and most of the flows may have ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

from weft.daemons.core.actions import FiveTuple, Hop
from weft.daemons.core.timers import RtoEstimator
from weft.daemons.tar.routing import flow_hash

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


ATTEMPTS = 8
ACTIVE_S = 2.5  # time since the last packet; the data plane reports an active flow every second
MOST_FLOWS = 4096  # further flows follow DR
MOST_DOUBLINGS = 8  # of the timeout
MOST_TIMEOUT_S = 6.4
AGAIN_S = 0.050  # least time between probes of a refused flow
LEAST_RTO_S = 0.030  # a busy server may delay an answer as long


@dataclass(frozen=True, kw_only=True)
class TarSettings:
    """Settings of a TAR server; times in s, rates per s.

    relay: target of a bypassed flow, as in routing.py.
    capacity_kbps: capacity of a link.
    gain_kbps: available bandwidth that a bypass must gain.
    refresh_s: time between two probes of an active flow.
    refreshes: refresh intervals after which a flow without a probe expires.
    refreshes_per_s: maximum rate of refreshed flows.
    probes_per_s: maximum rate of probes.
    probe_s: maximum time for an answer.
    idle_s: time after which an unused flow is forgotten.
    """

    relay: int
    capacity_kbps: int
    gain_kbps: int
    refresh_s: float
    refreshes: int
    refreshes_per_s: int
    probes_per_s: int
    probe_s: float
    idle_s: float


@dataclass(slots=True)
class OwnFlow:
    """One flow at its source.

    used_s: time of its last packet.
    attempt: attempt of the next probe, which decides the draws for it.
    failures: consecutive failed probes.
    silences: consecutive probes without an answer.
    asking: True while a probe is outstanding.
    due_s: time at which that probe times out, or the next one leaves.
    urgent: the next probe leaves as soon as the rate allows.
    """

    destination: int
    token: int
    used_s: float
    attempt: int = 0
    failures: int = 0
    silences: int = 0
    asking: bool = False
    asked_s: float = -inf
    due_s: float = inf
    urgent: bool = False
    path: tuple[int, ...] = ()

    def active(self, now: float) -> bool:
        """Return True if the flow was used within the last ACTIVE_S."""
        return self.used_s + ACTIVE_S >= now


class OwnFlows:
    """All flows from this server, ordered by the times of their probes.

    token: number of the last probe; probes of all flows share a sequence.
    most_lifetime_s: longest lifetime of a path that a probe requests.
    """

    def __init__(self, settings: TarSettings, *, token: int) -> None:
        self._token = token
        self._settings = settings
        self._rto = RtoEstimator(min(LEAST_RTO_S, settings.probe_s), settings.probe_s)
        self._next_probe_s = -inf  # earliest time
        most_lifetime_s = settings.refreshes * self._spacing_s(MOST_FLOWS)
        self.most_lifetime_s = max(settings.idle_s, most_lifetime_s)
        self._own: dict[FiveTuple, OwnFlow] = {}
        # heaps; an entry is superseded when its flow is scheduled again
        self._due: list[tuple[float, FiveTuple]] = []
        self._urgent: list[tuple[float, float, FiveTuple]] = []  # last use negated, due time, flow

    def get(self, flow: FiveTuple) -> OwnFlow | None:
        return self._own.get(flow)

    def items(self) -> Iterator[tuple[FiveTuple, OwnFlow]]:
        return iter(self._own.items())

    @property
    def deadline(self) -> float:
        """Return the time at which the next probe leaves or times out."""
        due_s = self._urgent[0][1] if self._urgent else self._due[0][0] if self._due else inf
        return max(due_s, self._next_probe_s)

    def add(self, flow: FiveTuple, destination: int, now: float) -> None:
        """Add a new flow; beyond MOST_FLOWS, flows follow DR."""
        if len(self._own) < MOST_FLOWS:
            own = self._own[flow] = OwnFlow(destination, self._token, now)
            self.hurry(flow, own, now)

    def used(self, flow: FiveTuple, own: OwnFlow, now: float) -> None:
        """Handle a packet of a known flow."""
        resumed = not (own.active(now) or own.asking)
        own.used_s = now
        if own.urgent or resumed:
            self.hurry(flow, own, now)

    def refused(self, destination: int, now: float) -> None:
        """Handle the refusal of a packet for the address `destination`."""
        for flow, own in self._own.items():
            affected = flow.destination == destination and own.path and own.active(now)
            if affected and not own.asking and own.asked_s + AGAIN_S < now:
                self.hurry(flow, own, now)

    def next(self, now: float) -> FiveTuple | None:
        """Return the flow that is due; None if there is none."""
        if self._next_probe_s > now:
            return None
        while self._urgent:
            _, _, flow = heappop(self._urgent)
            if (own := self._own.get(flow)) and own.urgent:
                return flow
        while self._due and self._due[0][0] <= now:
            due_s, flow = heappop(self._due)
            if (own := self._own.get(flow)) and own.due_s == due_s:
                return flow
        return None

    def forget_if_idle(self, flow: FiveTuple, own: OwnFlow, now: float) -> bool:
        """Forget `flow` if it is idle; return True if it was."""
        if own.used_s + self._settings.idle_s >= now:
            return False
        del self._own[flow]
        return True

    def ask(self, flow: FiveTuple, own: OwnFlow, now: float) -> float:
        """Register a probe that leaves with own.token; return the lifetime of its path, in s."""
        self._token += 1
        own.token = self._token
        own.asking = True
        own.asked_s = now
        self._next_probe_s = now + 1 / self._settings.probes_per_s
        timeout_s = self._rto.wait_s * 2 ** min(own.silences, MOST_DOUBLINGS)
        self._plan(flow, own, now + min(timeout_s, MOST_TIMEOUT_S))
        if not own.active(now):
            return self._settings.idle_s
        return self._interval_s(now) * self._settings.refreshes

    def answered(self, flow: FiveTuple, own: OwnFlow, now: float) -> None:
        """Handle an answer with a path."""
        if own.asking:
            self._rto.heard(now - own.asked_s)
        own.asking = False
        own.failures = 0
        own.silences = 0
        spread = 0.75 + 0.25 * (flow_hash(*flow) % 256) / 256
        interval_s = self._interval_s(now) if own.active(now) else self._settings.idle_s
        self._plan(flow, own, now + interval_s * spread)

    def failed(self, flow: FiveTuple, own: OwnFlow, now: float) -> None:
        """Schedule the next attempt, at once unless the flow is inactive or keeps failing."""
        own.asking = False
        own.attempt = (own.attempt + 1) % ATTEMPTS
        own.failures += 1
        if own.failures % ATTEMPTS and own.active(now):
            self.hurry(flow, own, now)
        else:
            self._plan(flow, own, now + self._interval_s(now))

    def hurry(self, flow: FiveTuple, own: OwnFlow, now: float) -> None:
        """Schedule a probe before those of all flows with an earlier last use."""
        own.due_s = inf
        own.urgent = True
        own.asking = False
        heappush(self._urgent, (-own.used_s, now, flow))

    def _plan(self, flow: FiveTuple, own: OwnFlow, due_s: float) -> None:
        own.due_s = due_s
        own.urgent = False
        heappush(self._due, (due_s, flow))

    def _interval_s(self, now: float) -> float:
        """Return the time between probes of an active flow."""
        return self._spacing_s(sum(own.active(now) for own in self._own.values()))

    def _spacing_s(self, active_flows: int) -> float:
        return max(self._settings.refresh_s, active_flows * (1 / self._settings.refreshes_per_s))
