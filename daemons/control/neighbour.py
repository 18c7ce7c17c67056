"""What a node knows of one neighbour, and how late that neighbour's hellos are.

A hello whose number is N ahead of the last one was due N intervals after it.  What is missing
between two numbers was lost; time beyond that is lateness.  See hello.py for what follows from it.
"""

from __future__ import annotations

from math import inf

from weft.daemons.core import wire
from weft.daemons.core.actions import Hop

SEQUENCE_BYTES = wire.SEQUENCE.size
MODULUS = 1 << 8 * SEQUENCE_BYTES
MOST_LATENESS = 100  # intervals, of the allowance
LATENESS_KEPT = 15 / 16  # of the allowance, by an interval in which the neighbour is heard


class Neighbour:
    """What is known of one neighbour at one port; `heard` and `up` as hello.py draws them."""

    __slots__ = (
        "back_s",
        "body",
        "ceiling",
        "damped_s",
        "dead_s",
        "digest",
        "heard",
        "heard_s",
        "hop",
        "incarnation",
        "interval_s",
        "lateness_s",
        "old",
        "old_s",
        "olds",
        "rests_s",
        "sequence",
        "up",
    )

    def __init__(self, hop: Hop) -> None:
        self.hop = hop
        self.heard = self.up = False
        self.back_s = -inf  # up since when, if it has died before
        self.rests_s = 0.0  # how long it was to stay down when it died last
        self.damped_s = -inf  # until when
        self.heard_s = -inf  # when last, or later if we did not run since
        self.dead_s = inf  # silence that is allowed, without the allowance for lateness
        self.interval_s = inf  # between its regular hellos
        self.lateness_s = 0.0  # the allowance for lateness
        self.incarnation = -1
        self.sequence = b""  # as in the message: big-endian, so that bytes compare as numbers do
        self.ceiling = b""  # up to which a larger one is newer, without looking closer
        # the sequence of the last hello that was too old; how many have followed one another, since
        # when
        self.old = 0
        self.olds, self.old_s = 0, -inf
        self.body = b""  # its last hello without the sequence number
        self.digest = 0

    def measure_lateness(self, sequence: bytes, now: float) -> bool:
        """Allow for the lateness of the hello number `sequence`, not yet noted; whether it was
        late."""
        ahead = (int.from_bytes(sequence, "big") - int.from_bytes(self.sequence, "big")) % MODULUS
        late_s = now - self.heard_s - ahead * self.interval_s
        late = self.interval_s < late_s < inf
        if late:
            self.allow(late_s)
        return late

    def allow(self, late_s: float) -> None:
        """Let it be silent for twice `late_s` longer than one that is never late."""
        self.lateness_s = max(self.lateness_s, min(2 * late_s, MOST_LATENESS * self.interval_s))

    def shrink_allowance(self, now: float) -> bool:
        """Shrink the allowance if it said something in the last interval; whether any is left."""
        if now - self.heard_s <= self.interval_s:
            left_s = self.lateness_s * LATENESS_KEPT
            self.lateness_s = left_s if left_s > self.interval_s / 10 else 0.0
        return self.lateness_s > 0
