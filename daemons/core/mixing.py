"""Numbers that tell values from one another without storing them: digests, and draws that everybody makes alike."""

from __future__ import annotations

BITS_64 = (1 << 64) - 1


def mixed(origin: int, sequence: int) -> int:
    """64 bits in which any change of `origin` or `sequence` changes about half: the finalizer of SplitMix64 (Steele,
    Lea and Flood, OOPSLA 2014).  A linear checksum would not do where digests are combined by exclusive or: equal
    changes in two origins would cancel."""
    x = (origin * 0x9E3779B97F4A7C15 + sequence) & BITS_64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & BITS_64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & BITS_64
    return x ^ x >> 31
