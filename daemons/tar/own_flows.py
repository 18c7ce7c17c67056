"""Flows from one TAR server: the order and times of their probes.

A flow is probed at once when it begins, then every `refresh_s`, or less often if `refreshes_per_s`
requires it.  After an answer without a path, the next attempt draws other relays; after ATTEMPTS of
them the source waits for one refresh interval.  Without an answer within a few round trips, at most
`probe_s`, the source probes again, and doubles its timeout each time.

A source sends `probes_per_s` probes at most.  The most recently used flow without a path goes
first.  A flow unused for ACTIVE_S is probed once more, which keeps its path until the flow would be
forgotten, and again when it resumes.  This matters when hundreds of paths break at once: each costs
servers ten or more messages, and most of the flows may have ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

from weft.daemons.core.actions import FiveTuple
from weft.daemons.core.timers import RtoEstimator
from weft.daemons.tar.routing import flow_hash

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
