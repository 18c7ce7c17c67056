"""How large the sequence number of something flooded may be.

Numbers of an origin begin at its incarnation, nanoseconds since 1970, and count on; so none is far
beyond what the clock says.  One that is forged, or that a flipped bit has made, could be as large
as its field has room for: the origin would have no number left by which to contradict it (OSPF's
sequence numbers come to the same end, RFC 2328, 12.1.6). So what lies beyond a limit is not
believed, and the limit grows faster than anybody counts.  Where a number at the limit was believed,
the origin jumps past it: it hears itself advertised, and its next number is within the limit again.

The limit leaves room for clocks that are wrong by decades: nodes of several machines need not agree
on the time.
"""

from __future__ import annotations

MOST_AHEAD = 1 << 61  # nanoseconds: 73 years


class SequenceLimit:
    """The limit at a node that began with this incarnation."""

    def __init__(self, incarnation: int) -> None:
        self._incarnation = incarnation
        self._began_s: float | None = None

    def holds(self, sequence: int, now: float) -> bool:
        """Whether `sequence` is within the limit; of the times `now` the first one is taken for the
        beginning."""
        if self._began_s is None:
            self._began_s = now
        return sequence <= self._incarnation + MOST_AHEAD + int((now - self._began_s) * 1e9)
