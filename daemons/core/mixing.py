"""Mixing of integers, for digests and for pseudo-random draws that all nodes make alike."""

from __future__ import annotations

BITS_64 = (1 << 64) - 1


def mixed(origin: int, sequence: int) -> int:
    """Return 64 bits, of which any change of `origin` or `sequence` flips about half.

    The finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).  Digests are combined by
    exclusive or, where equal changes in two origins would cancel under a linear checksum.
    """
    x = (origin * 0x9E3779B97F4A7C15 + sequence) & BITS_64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & BITS_64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & BITS_64
    return x ^ x >> 31
