"""First octets that depend on the prefix of a packet's destination (DFR, daemons/dfr/routing.py).

Other servers forward these addresses by their routes.  Before the lookup of a route, the first
octet changes:

    a server's own packets     10.x.y.z becomes 64.x.y.z, and then gets the octet that the map
                               `octets` has for its prefix; rules of nf_tables at output
    packets in transit         the octet of the prefix (transit_rewrite.py), where two consecutive
                               rewrites are one
    packets to the server      become 10.x.y.z, also where an ICMP error quotes one; rules at input

The map changes in one transaction, and so do the entries for transit.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from weft.daemons.core.actions import SetPrefixRewrite
from weft.daemons.routing import route_addresses
from weft.testbed.data_plane.capabilities import LinuxCapability
from weft.testbed.data_plane.source_rewrite import (
    TABLE,
    CarriedAddresses,
    NftRule,
    accept_other_destinations,
    input_rules,
    load_destination,
    set_first_octet,
    store_destination,
    tables,
    take,
)
from weft.testbed.data_plane.transit_rewrite import OctetKey, TransitRewriting
from weft.testbed.linux import netlink, nft
from weft.testbed.linux.netlink import NetlinkMessage
from weft.topologies.core.address import Prefix

OCTETS = "octets"
FIRST_TWO_BITS = 0xC0000000
DEFAULT_TTL = Path("/proc/sys/net/ipv4/ip_default_ttl")


CARRYING = CarriedAddresses(
    [
        nft.mask(FIRST_TWO_BITS, 0),
        *(nft.compare(nft.UNEQUAL, struct.pack(">I", bits)) for bits in (0, FIRST_TWO_BITS)),
    ],
    "64.0.0.0-191.255.255.255",
)


def rules(address: int, direct: int) -> list[NetlinkMessage]:
    """Return the changes that make a server send and receive such packets, with an empty map.

    Args:
        address: of the server.
        direct: first octet of packets that it sends.
    """
    look_up = [load_destination(), nft.look_up(OCTETS), store_destination(1)]
    output: list[NftRule] = [
        *accept_other_destinations(),
        set_first_octet(direct),
        (look_up, f"@nh,128,8 set ip daddr map @{OCTETS}"),
    ]
    octets = TABLE.map(OCTETS, 1, nft.ADDRESS, nft.OCTET, intervals=True)
    return tables([octets], output, input_rules(address, CARRYING))


def at_once(octets: Mapping[Prefix, int]) -> dict[Prefix, int]:
    """Return `octets` with the result of two consecutive rewrites where a second one applies.

    A packet that has reached its proxy may need another rewrite at once.
    """
    combined = dict(octets)
    second: dict[int, list[tuple[Prefix, int]]] = {}
    for prefix, octet in octets.items():
        second.setdefault(prefix.network >> 24, []).append((prefix, octet))
    for prefix, octet in octets.items():
        for after, last in second.get(octet, ()):
            pair = (prefix, route_addresses.with_octets(after, prefix.network >> 24))
            wide, narrow = sorted(pair, key=lambda prefix: prefix.length)
            if wide.holds(narrow.network):
                combined[narrow] = last
    return combined


class PrefixRewriting(LinuxCapability):
    """First octets by prefix of destination, at one server."""

    actions = (SetPrefixRewrite,)

    def __init__(
        self,
        address: int,
        octets: Sequence[int],
        ttl: int,
        routes: netlink.Socket,
        transit: TransitRewriting,
    ) -> None:
        """Install the rules in the namespace of the calling thread, with no prefix rewritten.

        Args:
            address: of the server.
            octets: all first octets of packets, the one of packets at their source first.
            ttl: default TTL of this server's own packets.
            routes: a netlink socket in the namespace.
            transit: this server's entries in the program for packets in transit.
        """
        self._octets: dict[Prefix, int] = {}
        self._installed: dict[Prefix, int] = {}  # as the kernel has them
        self._direct = octets[0]
        take([route_addresses.with_octet(address, octet) for octet in octets], routes)
        DEFAULT_TTL.write_text(f"{ttl}")
        self._tables = nft.Ruleset()
        self._tables.change(rules(address, octets[0]))
        self._transit = transit
        transit.begin(OctetKey.PREFIX)

    def sockets(self) -> list[socket.socket]:
        return [self._tables.socket]

    def apply(self, actions: Sequence[SetPrefixRewrite]) -> str:
        self.set(actions)
        count = sum(action.first_octet is not None for action in actions)
        return f"destinations rewritten: {count} prefixes more, {len(actions) - count} fewer"

    def reconcile(self) -> None:
        self.set(())

    def set(self, changes: Iterable[SetPrefixRewrite]) -> None:
        """Apply these changes, and those refused before, in one transaction.

        Raises:
            NetlinkError: the kernel refused one, and none is applied.
        """
        for change in changes:
            if change.first_octet is None:
                self._octets.pop(change.prefix, None)
            else:
                self._octets[change.prefix] = change.first_octet
        if self._octets != self._installed:
            own = {
                prefix: octet
                for prefix, octet in self._octets.items()
                if prefix.network >> 24 == self._direct
            }
            self._tables.change(TABLE.prefixes(OCTETS, own))
            self._transit.set_prefixes(at_once(self._octets))
            self._installed = dict(self._octets)
