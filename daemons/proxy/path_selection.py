"""What a source knows of the paths to one destination, and which of them it takes.

A path is DR's or a proxy's; its way numbers it (daemons/routing/proxy_addresses.py).  It is
connected from the answer that says so until somebody says that it broke.  Of the connected ones the
cheapest by `cost` is taken, the present one unless another is cheaper by more than loads change
anyway; with `direct_first` DR's wherever it is connected.  Where none is known to be connected, the
first of the alternatives that has not broken of late is used unverified.

One that broke is held down for `hold_s`, twice as long, up to `most_hold_s`, each time that it
breaks within that time of having been taken back: so is a link that flaps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

UNKNOWN_KBPS = 1 << 39  # a load that no path has
LOAD_MARGIN_KBPS = 64  # less of a difference is none
NOT_ASKED, ROUTINE, URGENT = range(3)


@dataclass(slots=True)
class CandidatePath:
    """One path.

    load: the greatest on it by the last answer, in kbit/s; None if it is not known to be connected.
    asking: whether a question of ours waits to leave or has no answer yet: NOT_ASKED, ROUTINE or
        URGENT.
    tries: how many before it had no answer.
    held_s: until when it is held down because it broke; hold_s: the last hold-down time.
    over: its hops, from server to server; empty as long as nobody has asked for them.
    """

    number: int
    hops: int
    load: int | None = None
    asking: int = NOT_ASKED
    tries: int = 0
    held_s: float = -inf
    hold_s: float = 0.0
    over: frozenset[tuple[int, int]] = frozenset()


class Paths:
    """The paths from here to server `node` at `address`: `alternatives`, (hops, way) each, in the
    order in which they are used unverified.

    direct: which of them is DR's; it is taken before anything is known.
    cost: of a path by hops and load, as in daemons/proxy/routing.py.
    direct_first: others are used, and asked about, only while DR's is not connected (CCRDN 5.4).
    used_s: when last a packet was sent there.
    refreshed_s: when last the paths were asked.
    """

    def __init__(
        self,
        node: int,
        address: int,
        alternatives: Sequence[tuple[int, int]],
        direct: int,
        *,
        cost: Callable[[int, int], int],
        hold_s: float,
        most_hold_s: float,
        direct_first: bool = False,
    ) -> None:
        self.node = node
        self.address = address
        self.ways = {number: CandidatePath(number, hops) for hops, number in alternatives}
        self.current = self.ways[direct]
        self.used_s = self.refreshed_s = -inf
        self.changes = 0
        self._cost = cost
        self._first = self.current if direct_first else None
        self._hold_s, self._most_hold_s = hold_s, most_hold_s

    def worth_asking(self) -> list[CandidatePath]:
        """The present way and all that would be no dearer if they were idle; all if nobody knows
        whether the present one is connected.

        In the beginning, though, what is longer than DR can wait, unless the load counts for more.
        """
        here = self.current
        if here.load is None and self.refreshed_s > -inf:
            return list(self.ways.values())
        if here is self._first:
            return [here]
        most = self._cost(here.hops, UNKNOWN_KBPS if here.load is None else here.load)
        return [
            way
            for way in self.ways.values()
            if way in (here, self._first) or self._cost(way.hops, 0) <= most
        ]

    def next_to_ask(self, count: int, now: float) -> list[CandidatePath]:
        """While it is not known whether the present way is connected: it and the next ones after
        it, up to `count` asked at a time."""
        if self.current.load is not None:
            return []
        ways = self.ways.values()
        untried = [
            way for way in ways if way.asking != URGENT and way.load is None and way.held_s <= now
        ]
        asking = sum(way.asking == URGENT for way in ways)
        return sorted(untried, key=lambda way: way is not self.current)[: max(0, count - asking)]

    def connected(self, way: CandidatePath, load: int) -> None:
        """`way` answers."""
        way.load, way.asking, way.tries = load, NOT_ASKED, 0

    def broke(self, way: CandidatePath, now: float) -> None:
        """`way` is broken, or does not answer."""
        again = way.hold_s and now < way.held_s + way.hold_s
        if not (again and way.load is None and now < way.held_s):  # else told twice
            way.hold_s = min(2 * way.hold_s, self._most_hold_s) if again else self._hold_s
            way.held_s = now + way.hold_s
        way.load, way.asking, way.tries = None, NOT_ASKED, 0

    def choose(self, now: float) -> bool:
        """Take the best way; whether it is another than before."""
        best = self._best(now)
        if best is self.current:
            return False
        self.current = best
        self.changes += 1
        return True

    def _best(self, now: float) -> CandidatePath:
        here = self.current
        known = [way for way in self.ways.values() if way.load is not None]
        # What broke of late is taken only where nothing else is connected.
        fit = [way for way in known if way.held_s <= now or way is here] or known
        if not fit:
            trusted = [way for way in self.ways.values() if way.held_s <= now]
            return here if here.held_s <= now or not trusted else trusted[0]
        if self._first in fit:
            return self._first
        best = min(fit, key=lambda way: self._cost(way.hops, way.load or 0))
        if here.load is not None and self._cost(here.hops, here.load) <= self._cost(
            best.hops, _dearer(best.load or 0)
        ):
            return here
        return best


def _dearer(load: int) -> int:
    return load + load // 4 + LOAD_MARGIN_KBPS
