"""Candidate paths from a source to one destination, and the choice among them.

A candidate path is DR's or one by way of a proxy; daemons/routing/route_addresses.py numbers them.
It is connected from an answer that says so until a failure is reported.  The source takes the
cheapest connected path by `cost`, but stays on the current one unless another is cheaper by more
than the usual variation of loads.  With `direct_first` it takes DR's path whenever that is
connected, and with the rule SHORTER unless a connected path is shorter.  With no path known to be
connected, it takes the first that is not held down, unverified.

A path that breaks is held down for `hold_s`.  The time doubles, up to `most_hold_s`, if the path
breaks again within that time after its release, as a flapping link does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from weft.daemons.proxy import routing as proxy

UNKNOWN_KBPS = 1 << 39  # a load that no path has
LOAD_MARGIN_KBPS = 64  # smaller differences do not count


@dataclass(frozen=True, kw_only=True)
class ProbeSettings:
    """Settings of a source; times in s, rates per s.

    policy: proxies that are tried.
    cost: cost of a path by hops and load.
    hello_s: time between hellos.
    refresh_s: time between probes of an active path.
    probe_s: least timeout of an urgent probe.
    hold_s: first hold-down time of a path that broke.
    most_hold_s: maximum hold-down time.
    table_s: time for which a server answers for a broken path through its sub-network; 0: never.
    idle_s: time after which an unused destination is forgotten.
    probes_per_s: maximum rate of routine probes.
    urgent_per_s: maximum rate of urgent probes.
    wakes_per_s: maximum rate at which other servers are woken.
    """

    policy: proxy.Policy
    cost: Callable[[int, int], int] = proxy.shortest_first
    hello_s: float
    refresh_s: float
    probe_s: float
    hold_s: float
    most_hold_s: float
    table_s: float
    idle_s: float
    probes_per_s: int
    urgent_per_s: int
    wakes_per_s: int


NOT_ASKED, ROUTINE, URGENT = range(3)


@dataclass(slots=True)
class CandidatePath:
    """One candidate path.

    load: greatest load on it by the last answer, in kbit/s; None if it is not known to be
        connected.
    asking: outstanding probe, waiting or sent: NOT_ASKED, ROUTINE or URGENT.
    tries: consecutive probes without an answer.
    held_down_until_s: end of its last hold-down.
    hold_s: last hold-down time.
    links: its links, from server to server; empty until they are needed.
    """

    number: int
    hops: int
    load: int | None = None
    asking: int = NOT_ASKED
    tries: int = 0
    held_down_until_s: float = -inf
    hold_s: float = 0.0
    links: frozenset[tuple[int, int]] = frozenset()


class Paths:
    """Candidate paths from this server to server `node` at `address`.

    alternatives: (hops, number of the path), in the order in which they are used unverified.
    direct: number of DR's path, which is taken before anything is known.
    settings: cost of a path, and hold-down times.
    direct_first: use and probe other paths only while DR's is not connected (CCRDN 5.4).
    used_s: time of the last packet to the destination.
    refreshed_s: time of the last refresh.
    """

    def __init__(
        self,
        node: int,
        address: int,
        alternatives: Sequence[tuple[int, int]],
        direct: int,
        settings: ProbeSettings,
        *,
        direct_first: bool = False,
    ) -> None:
        self.node = node
        self.address = address
        self.candidates = {number: CandidatePath(number, hops) for hops, number in alternatives}
        self.current = self._direct = self.candidates[direct]
        self.used_s = -inf
        self.refreshed_s = -inf
        self.changes = 0
        self._cost = settings.cost
        self._settings = settings
        self._first = self.current if direct_first else None

    def worth_asking(self) -> list[CandidatePath]:
        """Return the paths that a refresh probes: the current one, and those as cheap when idle.

        All paths if the current one is not known to be connected.  The first refresh leaves out
        paths longer than DR's, unless load counts for more than length.
        """
        current = self.current
        if current.load is None and self.refreshed_s > -inf:
            return list(self.candidates.values())
        if current is self._first:
            return [current]
        most = self._cost(current.hops, UNKNOWN_KBPS if current.load is None else current.load)
        return [
            path
            for path in self.candidates.values()
            if path in (current, self._first) or self._cost(path.hops, 0) <= most
        ]

    def next_to_ask(self, count: int, now: float) -> list[CandidatePath]:
        """Return the next paths to probe urgently, the current one first; none if it is connected.

        At most `count` paths are probed at a time.
        """
        if self.current.load is not None:
            return []
        paths = self.candidates.values()
        untried = [
            path
            for path in paths
            if path.asking != URGENT and path.load is None and path.held_down_until_s <= now
        ]
        asking = sum(path.asking == URGENT for path in paths)
        return sorted(untried, key=lambda path: path is not self.current)[: max(0, count - asking)]

    def connected(self, path: CandidatePath, load: int) -> None:
        """Handle an answer by which `path` is connected."""
        path.load = load
        path.asking = NOT_ASKED
        path.tries = 0

    def broke(self, path: CandidatePath, now: float) -> None:
        """Hold down `path`, which is broken or does not answer."""
        again = path.hold_s and now < path.held_down_until_s + path.hold_s
        repeated_news = again and path.load is None and now < path.held_down_until_s
        if not repeated_news:
            settings = self._settings
            path.hold_s = min(2 * path.hold_s, settings.most_hold_s) if again else settings.hold_s
            path.held_down_until_s = now + path.hold_s
        path.load = None
        path.asking = NOT_ASKED
        path.tries = 0

    def choose(self, now: float) -> bool:
        """Take the best path; return True if it is another than before."""
        best = self._best(now)
        if best is self.current:
            return False
        self.current = best
        self.changes += 1
        return True

    def _best(self, now: float) -> CandidatePath:
        current = self.current
        connected = [path for path in self.candidates.values() if path.load is not None]
        # a path that is held down is taken only if no other is connected
        usable = [
            path for path in connected if path.held_down_until_s <= now or path is current
        ] or connected
        if not usable:
            trusted = [path for path in self.candidates.values() if path.held_down_until_s <= now]
            return current if current.held_down_until_s <= now or not trusted else trusted[0]
        if self._first in usable:
            return self._first
        best = min(usable, key=lambda path: self._cost(path.hops, path.load or 0))
        if (
            self._settings.policy.choice == proxy.SHORTER
            and self._direct in usable
            and self._direct.hops == best.hops
        ):
            return self._direct
        load = best.load or 0
        limit = self._cost(best.hops, load + load // 4 + LOAD_MARGIN_KBPS)
        if current.load is not None and self._cost(current.hops, current.load) <= limit:
            return current
        return best
