"""Addresses whose first octet tells servers on the way more than where a packet goes: by way of
which proxy (PR), in which state (DFR), to which next hop (TAR).

A server has its address 10.x.y.z, and one more for each other first octet that is in use: those
from 64 to 191, 127 left out, which is the loopback.  The other three octets are the same in all of
them.
"""

from __future__ import annotations

from weft.topologies.core.address import Prefix

LABEL = 0xFFFFFF  # what all addresses of a server have in common
FIRST, LOOPBACK, LAST = 64, 127, 191
COUNT = LAST - FIRST  # how many first octets there are
# how many of them come before it: all in 64.0.0.0/2, number i being FIRST + i
BELOW_LOOPBACK = LOOPBACK - FIRST


def first_octet(number: int) -> int:
    """The first octet of number `number`, 0 <= number < COUNT."""
    return FIRST + number + (FIRST + number >= LOOPBACK)


def with_octet(address: int, octet: int) -> int:
    """`address` with that first octet."""
    return octet << 24 | address & LABEL


def prefix(own: Prefix, octet: int) -> Prefix:
    """The prefix of the servers of `own`, for packets whose address begins with that octet."""
    return Prefix(with_octet(own.network, octet), own.length)


def everybody(octet: int) -> Prefix:
    """All addresses that begin with that octet."""
    return Prefix(octet << 24, 8)
