"""Oracle of testbed/traffic/packet_layers.h: a packet's layer, by the answers to earlier ones.

An answer is good if the packet was neither marked nor trimmed before a link between switches.  A
silence is a packet about which nothing is heard for a timeout.

REPS (Bonato et al., "REPS: Recycled Entropy Packet Spraying", 2024): a sender recycles the entropy
of a good acknowledgement for one packet, and draws a random one if none is left, and for its first
window.  The last eight are kept.  After a silence it freezes: instead of random ones it uses the
last eight again, whether they were used or not.  Here an entropy is a layer.

Spritz (Bonato et al., "Spritz: Path-Aware Load Balancing in Low-Diameter Networks", 2026): a sender
explores paths and keeps those with good answers; marks, trimmed packets and silences remove them.
Scout stays on one of them, Spray uses them in turn.  This follows the abstract: explored layers are
drawn uniformly, where Spritz has weights, and a silent layer is not explored for a time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from weft.daemons.transport.parameters import LayerChoice

RECYCLED = 8


@dataclass
class BlindLayers:
    """A random layer for each packet."""

    layers: int
    window: int
    last: int = 0

    def next(self, now: int, word: int) -> int:
        """Return the layer of the next packet."""
        return word % self.layers

    def answered(self, layer: int, is_bad: bool, now: int) -> None:
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
    explored: int = 0
    frozen_until: int | None = None

    def next(self, now: int, word: int) -> int:
        if self.explored < self.window:
            self.explored += 1
            return word % self.layers
        if self.fresh:
            return self.fresh.popleft()
        if self.frozen_until is not None and self.ring:
            self.reused += 1
            return self.ring[(self.reused - 1) % len(self.ring)]
        return word % self.layers

    def answered(self, layer: int, is_bad: bool, now: int) -> None:
        if is_bad:
            return
        self.fresh.append(layer)
        if len(self.ring) < RECYCLED:
            self.ring.append(layer)
        else:
            self.ring[self.written % RECYCLED] = layer
        self.written += 1
        if self.frozen_until is not None and now >= self.frozen_until:
            self.frozen_until, self.explored = None, 0

    def silent(self, layer: int, until: int) -> None:
        if self.frozen_until is None and self.explored == self.window:
            self.frozen_until = until


@dataclass
class GoodLayers(BlindLayers):
    """Spritz's Scout; in_turn: Spray."""

    in_turn: bool = False
    good: set[int] = field(default_factory=set)
    blocked: set[int] = field(default_factory=set)
    blocked_until: int = 0

    def next(self, now: int, word: int) -> int:
        if now >= self.blocked_until:
            self.blocked.clear()
        everything = set(range(self.layers))
        if self.good:
            candidates, first = self.good, self.last + self.in_turn
        else:
            candidates, first = everything - self.blocked or everything, word
        self.last = min(candidates, key=lambda layer: (layer - first) % self.layers)
        return self.last

    def answered(self, layer: int, is_bad: bool, now: int) -> None:
        if is_bad:
            self.good.discard(layer)
        else:
            self.good.add(layer)
            self.blocked.discard(layer)

    def silent(self, layer: int, until: int) -> None:
        self.good.discard(layer)
        self.blocked.add(layer)
        self.blocked_until = until


def layers_of(choice: LayerChoice, layers: int, window: int) -> BlindLayers | None:
    """Return the state of a message; None for LayerChoice.FLOW."""
    match choice:
        case LayerChoice.FLOW:
            return None
        case LayerChoice.BLIND:
            return BlindLayers(layers, window)
        case LayerChoice.REPS:
            return RecycledLayers(layers, window)
    return GoodLayers(layers, window, in_turn=choice == LayerChoice.SPRAY)
