"""Choice among the candidate ports of a switch: the pure part of all load-balancing schemes.

Candidates are numbered 0 .. n-1 in the order of the route.  A load is the queue of a candidate, in
packets or bytes.  Random numbers are arguments of 32 bits.  All functions work on integers: a test
compares them with testbed/data_plane/select.h, and numba compiles them for the models of TTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from weft.topologies.core.address import AddressLayout

WORD = 0xFFFFFFFF
DIGITS = 4  # most digits of a destination's address that a switch reads


class IntSequence(Protocol):
    """List or array of integers."""

    def __len__(self) -> int: ...

    def __getitem__(self, i: int, /) -> int: ...


def below(random: int, n: int) -> int:
    """Return `random` scaled to 0 .. n-1."""
    return random * n >> 32


def another(first: int, random: int, n: int) -> int:
    """Return one of the n-1 candidates other than `first`, all equally likely; n >= 2."""
    return (first + 1 + below(random, n - 1)) % n


def mix(a: int, b: int) -> int:
    """Return a word whose every bit depends on every bit of both (MurmurHash3's finaliser)."""
    a = (a ^ b) & WORD
    a = (a ^ a >> 16) * 0x85EBCA6B & WORD
    a = (a ^ a >> 13) * 0xC2B2AE35 & WORD
    return a ^ a >> 16


def flow_hash(seed: int, source: int, destination: int, ports: int, protocol: int) -> int:
    """Return the hash of a flow at a switch with this seed.

    Unlike skb->hash it does not change when TCP suspects the path.
    """
    return mix(mix(mix(mix(seed, source), destination), ports), protocol)


class Digit(NamedTuple):
    """Position of a digit of a host's label in its address, and its weight in host_number()."""

    shift: int
    mask: int
    weight: int


def digits(layout: AddressLayout, tier: int) -> list[Digit]:
    """Return the digits of a destination that a switch of `tier`, from 1 at the hosts, reads."""
    positions = list(zip(layout.radices, layout.shifts, strict=True))[::-1]
    fields = []
    weight = 1
    for radix, shift in positions[tier - 1 :][:DIGITS]:
        fields.append(Digit(shift, (1 << max(1, (radix - 1).bit_length())) - 1, weight))
        weight *= radix
    return fields


def host_number(address: int, read: Sequence[Digit]) -> int:
    """Return the number that the digits `read` of `address` spell: t / d^(l-1) at tier l."""
    return sum((address >> digit.shift & digit.mask) * digit.weight for digit in read) & WORD


def d_mod_k(host: int, n: int) -> int:
    """Return the port of D-mod-k (TTC, section 2.1): floor(t / d^(l-1)) mod d.

    Args:
        host: that floor, see host_number().
        n: number of ports up.
    """
    return host % n


def ttc(loads: IntSequence, default: int, random: int, delta: int, ties_redirect: int) -> int:
    """Return the port of threshold-triggered choice (TTC, section 3).

    Args:
        loads: of all candidates.
        default: candidate to leave only for a load that is lower by more than `delta`.
        random: draws the other candidate.
        delta: threshold.
        ties_redirect: 1 to leave the default also at exactly `delta`.  Sections 4.1 and 5.2 need 0,
            appendix C reads as 1.
    """
    other = another(default, random, len(loads))
    excess = loads[default] - loads[other]
    return other if excess + ties_redirect > delta else default


def drill(loads: IntSequence, remembered: int, draws: IntSequence) -> int:
    """Return the least loaded of d = len(draws) random candidates and the remembered one.

    DRILL(d, m) of Ghorbani et al. (SIGCOMM 2017) with m at most 1, as they recommend; with d = 2
    and m = 0, Micro (HotNets 2015).  The first random candidate wins ties.

    Args:
        loads: of all candidates.
        remembered: last result (m = 1); len(loads) or more for m = 0 or the first packet.
        draws: random numbers.
    """
    n = len(loads)
    d = min(len(draws), n)
    first = below(draws[0], n)
    best = remembered if remembered < n and loads[remembered] <= loads[first] else first
    drawn = 0  # bit i: the i-th candidate behind the first was drawn
    for i in range(1, d):
        # Floyd's algorithm, for d-1 of the n-1 others
        bound = n - d + i
        behind = below(draws[i], bound)
        if drawn >> behind & 1:
            behind = bound - 1
        drawn |= 1 << behind
        candidate = (first + 1 + behind) % n
        if loads[candidate] < loads[best]:
            best = candidate
    return best


def shortest(loads: IntSequence, random: int) -> int:
    """Return the least loaded candidate; a random start of the search breaks ties."""
    n = len(loads)
    start = below(random, n)
    best = start
    for i in range(1, n):
        candidate = (start + i) % n
        if loads[candidate] < loads[best]:
            best = candidate
    return best


def in_turn(own: int, turn: int, n: int, groups: int) -> int:
    """Return the candidate of group `own` at its `turn` (LBSP, section 3.2).

    Candidate i * groups + g is the i-th one of group g.
    """
    rows = n // groups
    return turn % rows * groups + own if rows else own % n


def flowlet(last: int, idle_ns: int, gap_ns: int, random: int, n: int) -> int:
    """Return the flow's `last` candidate, or a random one after a gap (LetFlow, NSDI 2017)."""
    return last if idle_ns <= gap_ns and last < n else below(random, n)
