"""The flows of which one TAR server is the source: which of them it sends a probe for next, and
when.

A flow is probed at once when it begins, and again every `refresh_s`, or as often as
`refreshes_per_s` for all flows allow.  Where an answer says that there is no path, the next attempt
draws other relays; after ATTEMPTS of them the source waits as long as between two refreshes.  Where
no answer comes within a few times what answers take, and at most `probe_s`, the source asks again,
and waits twice as long each time.

A source sends `probes_per_s` probes at most, and first for the flow without a path that was used
last.  A flow that was not used for ACTIVE_S is probed once more, so that its path stays for as long
as the flow may come back, and then when it does: where hundreds of paths break at once, servers
have ten and more messages about each to pass on, and most of the flows may have ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

from weft.daemons.core.actions import FiveTuple
from weft.daemons.core.rto_estimator import RtoEstimator
from weft.daemons.tar.routing import number
from weft.daemons.tar.settings import TarSettings

ATTEMPTS = 8
ACTIVE_S = 2.5  # since a flow was last seen: the data plane shows one that goes on every second
MOST_FLOWS = 4096  # others go by DR
MOST_DOUBLINGS, MOST_PATIENCE_S = 8, 6.4  # with an answer, when several before it did not come
AGAIN_S = 0.050  # a refused flow is probed again no sooner
LEAST_RTO_S = 0.030  # with an answer: a server may be as late as that


@dataclass(slots=True)
class Own:
    """One flow at its source.

    used_s: when its last packet was seen.
    attempt: of the next probe, which decides what is drawn for it.
    failures: in a row; silences: those of them since the last answer, of whatever kind.
    asking: whether a probe is under way.  due_s: when that is given up, or the next one leaves.
    urgent: whether that is to be as soon as may be.
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
        """Whether its packets go on, as far as one can know."""
        return self.used_s + ACTIVE_S >= now


class OwnFlows:
    """All of them, and the order in which they are due.

    token: of the first probe, less one; probes of all flows are numbered from there on.
    most_lifetime_s: for how long a probe asks servers to keep what it finds, at the most.
    """

    def __init__(self, settings: TarSettings, *, token: int) -> None:
        self._token = token
        self._refresh_s, self._refreshes = settings.refresh_s, settings.refreshes
        self._refresh_gap_s = 1 / settings.refreshes_per_s
        self._rto = RtoEstimator(min(LEAST_RTO_S, settings.probe_s), settings.probe_s)
        self._gap_s, self._ask_s = 1 / settings.probes_per_s, -inf
        self._idle_s = settings.idle_s
        most_interval_s = max(self._refresh_s, MOST_FLOWS * self._refresh_gap_s)
        self.most_lifetime_s = max(settings.idle_s, settings.refreshes * most_interval_s)
        self._own: dict[FiveTuple, Own] = {}
        self._due: list[tuple[float, FiveTuple]] = []  # may hold superseded entries
        # by last use, and since when; likewise
        self._urgent: list[tuple[float, float, FiveTuple]] = []

    def __len__(self) -> int:
        return len(self._own)

    def get(self, flow: FiveTuple) -> Own | None:
        return self._own.get(flow)

    def items(self) -> Iterator[tuple[FiveTuple, Own]]:
        return iter(self._own.items())

    @property
    def deadline(self) -> float:
        """When the next probe leaves, or is given up."""
        due_s = self._urgent[0][1] if self._urgent else self._due[0][0] if self._due else inf
        return max(due_s, self._ask_s)

    def add(self, flow: FiveTuple, destination: int, now: float) -> None:
        """A new flow; beyond MOST_FLOWS it is left to DR."""
        if len(self._own) < MOST_FLOWS:
            own = self._own[flow] = Own(destination, self._token, now)
            self.hurry(flow, own, now)

    def used(self, flow: FiveTuple, own: Own, now: float) -> None:
        """A packet of a known flow was seen."""
        active, own.used_s = own.active(now), now
        if own.urgent or not (active or own.asking):
            self.hurry(flow, own, now)

    def refused(self, destination: int, now: float) -> None:
        """A packet for the address `destination` was refused on its way."""
        for flow, own in self._own.items():
            concerned = flow.destination == destination and own.path and own.active(now)
            if concerned and not own.asking and own.asked_s + AGAIN_S < now:
                self.hurry(flow, own, now)

    def next(self, now: float) -> FiveTuple | None:
        """The flow that is due, if any."""
        if self._ask_s > now:
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

    def forget_if_idle(self, flow: FiveTuple, own: Own, now: float) -> bool:
        """Forget a flow that was not used for long; whether that was so."""
        if own.used_s + self._idle_s >= now:
            return False
        del self._own[flow]
        return True

    def ask(self, flow: FiveTuple, own: Own, now: float) -> float:
        """A probe leaves, with own.token; return for how long, in seconds, servers are to keep what
        it finds."""
        self._token += 1
        own.token, own.asking, own.asked_s = self._token, True, now
        self._ask_s = now + self._gap_s
        wait_s = self._rto.wait_s * 2 ** min(own.silences, MOST_DOUBLINGS)
        self._plan(flow, own, now + min(wait_s, MOST_PATIENCE_S))
        return self._interval_s(now) * self._refreshes if own.active(now) else self._idle_s

    def answered(self, flow: FiveTuple, own: Own, now: float) -> None:
        """The probe has found a path."""
        if own.asking:
            self._rto.heard(now - own.asked_s)
        own.asking, own.failures, own.silences = False, 0, 0
        spread = 0.75 + 0.25 * (number(*flow) % 256) / 256
        self._plan(
            flow, own, now + (self._interval_s(now) if own.active(now) else self._idle_s) * spread
        )

    def failed(self, flow: FiveTuple, own: Own, now: float) -> None:
        """Draw anew and ask again: at once or, if nobody waits for it or after many failures,
        later."""
        own.asking = False
        own.attempt = (own.attempt + 1) % ATTEMPTS
        own.failures += 1
        if own.failures % ATTEMPTS and own.active(now):
            self.hurry(flow, own, now)
        else:
            self._plan(flow, own, now + self._interval_s(now))

    def hurry(self, flow: FiveTuple, own: Own, now: float) -> None:
        """Ask about it before all that were used longer ago."""
        own.due_s, own.urgent, own.asking = inf, True, False
        heappush(self._urgent, (-own.used_s, now, flow))

    def _plan(self, flow: FiveTuple, own: Own, due_s: float) -> None:
        own.due_s, own.urgent = due_s, False
        heappush(self._due, (due_s, flow))

    def _interval_s(self, now: float) -> float:
        """Time between probes for a flow whose packets go on."""
        return max(
            self._refresh_s,
            sum(own.active(now) for own in self._own.values()) * self._refresh_gap_s,
        )
