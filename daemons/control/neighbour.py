"""State of one neighbour, and the allowance for the lateness of its hellos.

On a machine too slow for its daemons, silence is no sign of death.  A hello whose sequence number
is N ahead was due N intervals after the last one; later arrival is lateness, a gap in numbers is
loss.  Twice the lateness of hellos, or of our own ticks, is added to the permitted silence.  The
allowance is at most MOST_LATENESS intervals and shrinks while hellos arrive.
"""

from __future__ import annotations

from math import inf

from weft.daemons.core import wire
from weft.daemons.core.actions import Hop

SEQUENCE_BYTES = wire.SEQUENCE.size
MODULUS = 1 << 8 * SEQUENCE_BYTES
MOST_LATENESS = 100  # intervals: limit of the allowance
LATENESS_KEPT = 15 / 16  # fraction of the allowance left after an interval with a hello


class Neighbour:
    """State of one neighbour at one port; see hello.py for `heard` and `up`.

    returned_s: time at which it came up again after a failure.
    hold_down_s: hold-down time at the last failure.
    damped_until_s: end of the hold-down.
    heard_s: time of the last hello, or later if this daemon did not run since.
    dead_s: permitted silence without the allowance for lateness.
    interval_s: time between its regular hellos.
    lateness_s: allowance for lateness.
    sequence: as in the message, big-endian: bytes compare as numbers do.
    ceiling: highest sequence number that refresh() takes as newer.
    old: sequence number of its last outdated hello.
    olds: consecutive outdated hellos, the first at old_s.
    body: its last hello without the sequence number.
    """

    __slots__ = (
        "body",
        "ceiling",
        "damped_until_s",
        "dead_s",
        "digest",
        "heard",
        "heard_s",
        "hold_down_s",
        "hop",
        "incarnation",
        "interval_s",
        "lateness_s",
        "old",
        "old_s",
        "olds",
        "returned_s",
        "sequence",
        "up",
    )

    def __init__(self, hop: Hop) -> None:
        self.hop = hop
        self.heard = self.up = False
        self.returned_s = -inf
        self.hold_down_s = 0.0
        self.damped_until_s = -inf
        self.heard_s = -inf
        self.dead_s = inf
        self.interval_s = inf
        self.lateness_s = 0.0
        self.incarnation = -1
        self.sequence = b""
        self.ceiling = b""
        self.old = 0
        self.olds = 0
        self.old_s = -inf
        self.body = b""
        self.digest = 0

    @property
    def dies_s(self) -> float:
        """Time at which it is dead without a further hello."""
        return self.heard_s + self.dead_s + self.lateness_s

    def measure_lateness(self, sequence: bytes, now: float) -> bool:
        """Allow for the lateness of the hello `sequence`, not yet stored; True if it was late."""
        ahead = (int.from_bytes(sequence, "big") - int.from_bytes(self.sequence, "big")) % MODULUS
        late_s = now - self.heard_s - ahead * self.interval_s
        late = self.interval_s < late_s < inf
        if late:
            self.allow(late_s)
        return late

    def allow(self, late_s: float) -> None:
        """Permit twice `late_s` of additional silence."""
        self.lateness_s = max(self.lateness_s, min(2 * late_s, MOST_LATENESS * self.interval_s))

    def shrink_allowance(self, now: float) -> bool:
        """Shrink the allowance if a hello came in the last interval; True if any is left."""
        if now - self.heard_s <= self.interval_s:
            left_s = self.lateness_s * LATENESS_KEPT
            self.lateness_s = left_s if left_s > self.interval_s / 10 else 0.0
        return self.lateness_s > 0
