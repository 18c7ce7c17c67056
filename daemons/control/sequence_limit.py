"""Upper limit of sequence numbers in flooded messages.

Sequence numbers of an origin begin at its incarnation, in nanoseconds since 1970.  A forged or
corrupted number could be the largest of its field, and leave the origin no number to contradict it
(compare RFC 2328, 12.1.6).  Numbers beyond a limit are therefore ignored.  The limit grows faster
than any origin counts, so that an origin can always go past a number that was accepted.  It leaves
room for clocks that are wrong by decades.
"""

from __future__ import annotations

MOST_AHEAD = 1 << 61  # nanoseconds: 73 years


class SequenceLimit:
    """Limit at a node that started with `incarnation`."""

    def __init__(self, incarnation: int) -> None:
        self._incarnation = incarnation
        self._began_s: float | None = None

    def holds(self, sequence: int, now: float) -> bool:
        """Return True if `sequence` is within the limit; time counts from the first call."""
        if self._began_s is None:
            self._began_s = now
        return sequence <= self._incarnation + MOST_AHEAD + int((now - self._began_s) * 1e9)
