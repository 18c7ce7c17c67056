"""Which of a switch's candidate ports takes a packet or a flow: the pure half of every
load-balancing scheme.

Candidates are numbered 0 .. n-1 in the order in which the route lists them.  A load is what waits
at a candidate, in packets or in bytes.  Random numbers are arguments, 32 bits each.  All is written
on integers: testbed/data_plane/select.h is the same in C, held equal by a test, and numba compiles
it for the models of TTC's paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from weft.topologies.core.address import AddressLayout

WORD = 0xFFFFFFFF
DIGITS = 4  # of a destination's address, that a switch reads


class IntSequence(Protocol):
    """Integers in a row: a list, or an array."""

    def __len__(self) -> int: ...

    def __getitem__(self, i: int, /) -> int: ...


def below(random: int, n: int) -> int:
    """`random` scaled to 0 .. n-1."""
    return random * n >> 32


def another(first: int, random: int, n: int) -> int:
    """One of the n-1 candidates that are not `first`, each equally likely; n >= 2."""
    return (first + 1 + below(random, n - 1)) % n


def mix(a: int, b: int) -> int:
    """Two words in one, every bit of which depends on every bit of both (MurmurHash3's
    finaliser)."""
    a = (a ^ b) & WORD
    a = (a ^ a >> 16) * 0x85EBCA6B & WORD
    a = (a ^ a >> 13) * 0xC2B2AE35 & WORD
    return a ^ a >> 16


def flow_hash(seed: int, source: int, destination: int, ports: int, protocol: int) -> int:
    """A word that is the same for all packets of a flow, and differs between switches with
    different seeds.

    Ours, not skb->hash, which changes when TCP suspects the path.
    """
    return mix(mix(mix(mix(seed, source), destination), ports), protocol)


class Digit(NamedTuple):
    """Where a digit of a host's label lies in its address, and what it counts in `host_number`."""

    shift: int
    mask: int
    weight: int


def digits(layout: AddressLayout, tier: int) -> list[Digit]:
    """What a switch of `tier`, from 1 at the hosts, reads of a destination: its digit `tier` and
    those above."""
    found, weight = [], 1
    for radix, shift in list(zip(layout.radices, layout.shifts, strict=True))[::-1][tier - 1 :][
        :DIGITS
    ]:
        found.append(Digit(shift, (1 << max(1, (radix - 1).bit_length())) - 1, weight))
        weight *= radix
    return found


def host_number(address: int, read: Sequence[Digit]) -> int:
    """The number of the host with this address among those that differ in the digits `read`: t /
    d^(l-1) at tier l."""
    return sum((address >> digit.shift & digit.mask) * digit.weight for digit in read) & WORD


def d_mod_k(host: int, n: int) -> int:
    """D-mod-k (TTC, section 2.1): u_l = floor(t / d^(l-1)) mod d; `host` is that floor, `n` the
    number of up-ports."""
    return host % n


def ttc(loads: IntSequence, default: int, random: int, delta: int, ties_redirect: int) -> int:
    """Threshold-based two-choice (TTC, section 3): `default`, or a random other if that has over
    `delta` less.

    ties_redirect: 1 to leave the default also for another that has exactly `delta` less.  The text
    of sections 4.1 and 5.2 needs 0, appendix C reads as 1; it matters at delta = 0, which gains
    nothing with 1 and 8 to 20 % with 0.
    """
    other = another(default, random, len(loads))
    excess = loads[default] - loads[other]
    return other if excess + ties_redirect > delta else default


def drill(loads: IntSequence, remembered: int, draws: IntSequence) -> int:
    """DRILL(d, m) with d = len(draws): the least loaded of d different random candidates and the
    one `remembered`.

    remembered: what this function returned last time (m = 1); anything not below n for m = 0 or the
    first time. Ghorbani et al., SIGCOMM 2017; with d = 2, m = 0 it is Micro (HotNets 2015).  Ours:
    m is at most 1, which is what they recommend.  The first random candidate is uniform and wins
    ties, so that none is preferred.
    """
    n, d = len(loads), min(len(draws), len(loads))
    first = below(draws[0], n)
    best = remembered if remembered < n and loads[remembered] <= loads[first] else first
    chosen = 0  # bit i: the i-th candidate behind the first has been drawn
    for i in range(1, d):
        # Floyd's algorithm, for d-1 of the n-1 others
        bound = n - d + i
        behind = below(draws[i], bound)
        if chosen >> behind & 1:
            behind = bound - 1
        chosen |= 1 << behind
        candidate = (first + 1 + behind) % n
        if loads[candidate] < loads[best]:
            best = candidate
    return best


def shortest(loads: IntSequence, random: int) -> int:
    """Join the shortest queue: the least loaded of all candidates, ties broken by where the search
    begins."""
    n = len(loads)
    start = below(random, n)
    best = start
    for i in range(1, n):
        candidate = (start + i) % n
        if loads[candidate] < loads[best]:
            best = candidate
    return best


def in_turn(own: int, turn: int, n: int, groups: int) -> int:
    """LBSP, section 3.2: of `n` candidates, the i-th of group g being number i * groups + g, the
    one of group `own` at its `turn`."""
    rows = n // groups
    return turn % rows * groups + own if rows else own % n


def flowlet(last: int, idle_ns: int, gap_ns: int, random: int, n: int) -> int:
    """LetFlow (Vanini et al., NSDI 2017): the flow's `last` candidate, or after a gap of over
    `gap_ns` a random one."""
    return last if idle_ns <= gap_ns and last < n else below(random, n)
