"""What a source knows of the paths to one destination, and which of them it takes.

A path is DR's or a proxy's; `ways` numbers them (daemons/routing/via.py).  A path is connected as long as answers say
so, or broken.  Of the connected ones the cheapest by `cost` is taken, the present one unless another is cheaper by more
than its load changes anyway.  One that broke is not taken again for `hold_s`, twice as long each time that it breaks
within that time of having been taken back: a link that flaps is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

MOST_HOLD_S = 30.0
LOAD_MARGIN_KBPS = 64  # less of a difference is none


@dataclass(slots=True)
class Way:
    """One path.

    hops: its length.
    load: greatest on it by the last answer, in kbit/s; None if it is not known to be connected.
    asked_s, token, tries: when our question left that has no answer yet, its number, how many before it; asked_s is
        infinite if there is none.
    held_s: until when it is not taken because it broke; hold_s: how long the last time.
    """

    number: int
    hops: int
    load: int | None = None
    asked_s: float = inf
    token: int = 0
    tries: int = 0
    broken: bool = False
    held_s: float = -inf
    hold_s: float = 0.0


class Paths:
    """The paths from here to server `node` at `address`: `alternatives`, (hops, way) each, DR's among them.

    cost: of a path by hops and load, as in daemons/routing/proxy.py.
    used_s: when last a packet was sent there.
    refresh_s: when to ask again.
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
    ) -> None:
        self.node = node
        self.address = address
        self.ways = {number: Way(number, hops) for hops, number in alternatives}
        self.current = self.ways[direct]
        self.used_s = self.refresh_s = -inf
        self.changes = 0
        self._cost = cost
        self._hold_s = hold_s

    def worth_asking(self) -> list[Way]:
        """The present way and all that are no longer, the shortest first; every way if the present one is broken."""
        here = self.current
        return [way for way in self.ways.values() if here.broken or way.hops <= here.hops or way is here]

    def others(self) -> list[Way]:
        """Every way but the present one, the shortest first."""
        return [way for way in self.ways.values() if way is not self.current]

    def connected(self, way: Way, load: int) -> None:
        """`way` answers."""
        way.load, way.broken, way.asked_s, way.tries = load, False, inf, 0

    def broke(self, way: Way, now: float) -> None:
        """`way` is broken, or does not answer."""
        if way.load is not None or way is self.current:
            again = now < way.held_s + way.hold_s
            way.hold_s = min(2 * way.hold_s, MOST_HOLD_S) if again else self._hold_s
            way.held_s = now + way.hold_s
        way.load, way.broken, way.asked_s, way.tries = None, True, inf, 0

    def choose(self, now: float) -> bool:
        """Take the best way; whether it is another than before."""
        known = [way for way in self.ways.values() if way.load is not None]
        # What has broken of late is taken only where there is nothing else.
        fit = [way for way in known if way.held_s <= now or way is self.current] or known
        if not fit:
            return False
        best = min(fit, key=lambda way: self._cost(way.hops, way.load or 0))
        held = self.current
        if best is held:
            return False
        if held.load is not None and self._cost(held.hops, held.load) <= self._cost(best.hops, _dearer(best.load or 0)):
            return False
        self.current = best
        self.changes += 1
        return True


def _dearer(load: int) -> int:
    return load + load // 4 + LOAD_MARGIN_KBPS
