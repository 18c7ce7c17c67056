"""Addresses whose first octet carries routing state: PR's proxy, DFR's state, TAR's next hop.

A server has its address 10.x.y.z, and one more for each other first octet in use, from 64 to 191
without the loopback's 127.  The other three octets are always the same.
"""

from __future__ import annotations

from weft.topologies.core.address import Prefix

LABEL = 0xFFFFFF  # mask of the octets that all addresses of a server share
FIRST, LOOPBACK, LAST = 64, 127, 191
COUNT = LAST - FIRST  # number of first octets
BELOW_LOOPBACK = LOOPBACK - FIRST  # number of those below 127: number i is FIRST + i


def first_octet(number: int) -> int:
    """Return the first octet with number `number`, 0 <= number < COUNT."""
    return FIRST + number + (FIRST + number >= LOOPBACK)


def with_octet(address: int, octet: int) -> int:
    """Return `address` with another first octet."""
    return octet << 24 | address & LABEL


def prefix(own: Prefix, octet: int) -> Prefix:
    """Return the prefix of the servers of `own` with another first octet."""
    return Prefix(with_octet(own.network, octet), own.length)


def all_addresses(octet: int) -> Prefix:
    """Return the prefix of all addresses that begin with `octet`."""
    return Prefix(octet << 24, 8)
