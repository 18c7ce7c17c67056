"""Oracle of testbed/traffic/packet_layers.h: a packet's layer, by the answers to earlier ones.

An answer is good if the packet was neither marked nor trimmed before a link between switches.  A
silence is a packet about which nothing is heard for a timeout.

REPS (Bonato et al., "REPS: Recycled Entropy Packet Spraying", EuroSys 2026): a sender recycles the
entropy of a good acknowledgement for one packet, and draws a random one if none is left.  The last
eight are kept.  After a silence it freezes: instead of random ones it uses the last eight again,
whether they were used or not.  Later it forgets them and explores for a window.  Here an entropy is
a layer.

Spritz (Bonato et al., "Spritz: Path-Aware Load Balancing in Low-Diameter Networks", 2026): a sender
keeps up to nine paths with good answers, and draws a random one if none is left and for every
twelfth packet.  Scout stays on the first of them; a trimmed packet, a silence, or nine marks remove
a path.  Spray uses each of them once.  A path with a silence is not drawn again.  Paths are drawn
with weights by their length there; here layers are drawn uniformly.

Both follow the authors' simulators (tommasobo/REPS_EuroSys_Artifact, class UecMpSource of
spcl/HTSIM), but for the use of recycled layers before others while frozen, which the text has.

MRC (Multipath Reliable Connection, arXiv 2605.04333; the API's examples in its public repository
at the Open Compute Project): each packet takes another entropy value, evenly over all planes.  A
loss makes the packet's value ASSUMED_BAD, which is probed until it is GOOD again.  A trimmed
packet keeps its path.  Some values always stay active.  Ours, where the texts at hand say nothing:
values go in turn, from a random one on; a mark lets a value miss its next turn; probes are sent
each timeout, as headers of a packet that has arrived; a quarter of the values stays active, as in
the examples.  A value that an operator denies (DENIED), or of which nothing is known yet
(UNKNOWN), does not occur.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto

from weft.daemons.transport.endpoint import LayerChoice

RECYCLED = 8  # layers that REPS remembers
MOST_GOOD = 9  # layers that Spritz remembers
MOST_REPEATED = 10  # packets of Spritz until one explores
MOST_MARKS = 8  # that Scout bears
LEAST_USED = 4  # MRC uses at least this part of the layers


class Answer(Enum):
    """Answer about a packet; TRIMMED: before a link between switches."""

    GOOD = auto()
    MARKED = auto()
    TRIMMED = auto()


@dataclass
class BlindLayers:
    """A random layer for each packet."""

    layers: int
    window: int
    last: int = 0

    def next(self, now: int, word: int) -> int:
        """Return the layer of the next packet."""
        return word % self.layers

    def answered(self, layer: int, answer: Answer, now: int) -> None:
        """Note an answer about a packet that went by `layer`."""

    def silent(self, layer: int, until: int) -> None:
        """Note a silence, whose effect ends at `until`."""


@dataclass
class RecycledLayers(BlindLayers):
    """REPS."""

    fresh: deque[int] = field(default_factory=lambda: deque(maxlen=RECYCLED))
    ring: list[int] = field(default_factory=list)
    written: int = 0
    reused: int = 0
    exploring: int = 0
    frozen_until: int | None = None

    def next(self, now: int, word: int) -> int:
        if self.exploring:
            self.exploring -= 1
            return word % self.layers
        if self.fresh:
            return self.fresh.popleft()
        if self.frozen_until is not None and self.ring:
            self.reused += 1
            return self.ring[(self.reused - 1) % len(self.ring)]
        return word % self.layers

    def answered(self, layer: int, answer: Answer, now: int) -> None:
        if answer is not Answer.GOOD:
            return
        if self.frozen_until is not None and now >= self.frozen_until:
            self.fresh.clear()
            self.ring.clear()
            self.written = self.reused = 0
            self.frozen_until, self.exploring = None, self.window
        self.fresh.append(layer)
        if len(self.ring) < RECYCLED:
            self.ring.append(layer)
        else:
            self.ring[self.written % RECYCLED] = layer
        self.written += 1

    def silent(self, layer: int, until: int) -> None:
        if self.frozen_until is None and not self.exploring:
            self.frozen_until = until


@dataclass
class GoodLayers(BlindLayers):
    """Spritz's Spray."""

    good: list[int] = field(default_factory=list)
    blocked: set[int] = field(default_factory=set)
    repeated: int = 0

    def next(self, now: int, word: int) -> int:
        if self.repeated > MOST_REPEATED:
            self.repeated = 0
            return self.explored(word)
        self.repeated += 1
        return self.good.pop(0) if self.good else self.explored(word)

    def explored(self, word: int) -> int:
        """Return a random layer that is not blocked."""
        healthy = [layer for layer in range(self.layers) if layer not in self.blocked]
        return healthy[word % len(healthy)]

    def answered(self, layer: int, answer: Answer, now: int) -> None:
        if answer is Answer.GOOD and len(self.good) < MOST_GOOD:
            self.good.append(layer)

    def silent(self, layer: int, until: int) -> None:
        if len(self.blocked | {layer}) < self.layers:
            self.blocked.add(layer)


@dataclass
class ScoutedLayers(GoodLayers):
    """Spritz's Scout."""

    marks: int = 0

    def next(self, now: int, word: int) -> int:
        if self.repeated > MOST_REPEATED:
            self.repeated = 0
            return self.explored(word)
        if not self.good:
            return self.explored(word)
        self.repeated += 1
        return self.good[0]

    def answered(self, layer: int, answer: Answer, now: int) -> None:
        if answer is Answer.GOOD:
            if layer not in self.good:
                super().answered(layer, answer, now)
        elif layer in self.good:
            self.marks += answer is Answer.MARKED
            if answer is Answer.TRIMMED or self.marks > MOST_MARKS:
                self.forget(layer)

    def silent(self, layer: int, until: int) -> None:
        if layer in self.good:
            self.forget(layer)
            super().silent(layer, until)

    def forget(self, layer: int) -> None:
        """Take `layer` for bad."""
        self.marks = 0
        self.good.remove(layer)


@dataclass
class TurnedLayers(BlindLayers):
    """MRC."""

    bad: set[int] = field(default_factory=set)
    congested: set[int] = field(default_factory=set)

    def next(self, now: int, word: int) -> int:
        layer = self.last
        self.last = (layer + 1) % self.layers
        if layer in self.bad | self.congested:
            self.congested.discard(layer)
            return self.next(now, word)
        return layer

    def answered(self, layer: int, answer: Answer, now: int) -> None:
        self.bad.discard(layer)
        self.congested.discard(layer)
        if answer is Answer.MARKED:
            self.congested.add(layer)

    def silent(self, layer: int, until: int) -> None:
        if self.layers - len(self.bad | {layer}) >= max(1, self.layers // LEAST_USED):
            self.bad.add(layer)


def layers_of(choice: LayerChoice, layers: int, window: int, first: int = 0) -> BlindLayers | None:
    """Return the state of a message; None for LayerChoice.FLOW.

    first: layer of its first packet under MRC.
    """
    match choice:
        case LayerChoice.FLOW:
            return None
        case LayerChoice.BLIND:
            return BlindLayers(layers, window)
        case LayerChoice.REPS:
            return RecycledLayers(layers, window)
        case LayerChoice.SCOUT:
            return ScoutedLayers(layers, window)
        case LayerChoice.MRC:
            return TurnedLayers(layers, window, first)
    return GoodLayers(layers, window)
