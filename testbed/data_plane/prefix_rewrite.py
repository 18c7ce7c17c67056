"""Packets whose addresses say what they carry (daemons/dfr/dfr_addresses.py), on the kernel.

Servers forward such addresses by their routes like any others.  Before a route is looked up,

    packets of its own   10.x.y.z becomes 64.x.y.z; then what the map `octets` has for its prefix,
                         if anything; by rules of nf_tables at output
    of others            the first octet becomes what transit_rewrite.py has for the prefix, where
                         two changes, one after the other, are one
    for itself           whatever carries an address of this server was for 10.x.y.z, and errors are
                         about packets for 10.x.y.z; by rules at input

The map is changed in one transaction, and so are those of the program in transit: no packet sees
half of it.

Why so: an address costs a packet no byte, ping and traceroute show every hop, and a packet that is
rerouted need not leave the kernel for the daemon.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from weft.daemons.core.actions import SetPrefixRewrite
from weft.daemons.routing import first_octets
from weft.testbed.data_plane.capability import LinuxCapability
from weft.testbed.data_plane.source_rewrite import (
    IP_CHECKSUM,
    IP_DESTINATION,
    TO_ITSELF,
    CarriedAddresses,
    NftRule,
    take,
    taken_in,
)
from weft.testbed.data_plane.transit_rewrite import By, TransitRewriting
from weft.testbed.linux import netlink, nft
from weft.testbed.linux.netlink import NetlinkMessage
from weft.topologies.core.address import SERVER_BLOCK, Prefix

TABLE, OCTETS = "weft", "octets"
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
    """The changes that make a server with this address send and take such packets, none of them
    changed on their way yet; `direct`: the first octet of those that it sends."""
    destination = nft.load(nft.NETWORK_HEADER, IP_DESTINATION, 4)
    rewrite = nft.store(nft.NETWORK_HEADER, IP_DESTINATION, 4, IP_CHECKSUM, pseudo_header=True)
    first_octet = nft.store(nft.NETWORK_HEADER, IP_DESTINATION, 1, IP_CHECKSUM, pseudo_header=True)
    others = [
        destination,
        nft.mask(0xFF000000, 0),
        nft.compare(nft.UNEQUAL, struct.pack(">I", SERVER_BLOCK)),
    ]
    change: NftRule = (
        [destination, nft.look_up(OCTETS), first_octet],
        f"@nh,128,8 set ip daddr map @{OCTETS}",
    )
    out: list[NftRule] = [
        (TO_ITSELF, "oif lo accept"),
        ([*others, nft.accept()], "ip daddr != 10.0.0.0/8 accept"),
        (
            [destination, nft.mask(first_octets.LABEL, direct << 24), rewrite],
            f"ip daddr set ip daddr & 0.255.255.255 | {direct}.0.0.0",
        ),
        change,
    ]
    return [
        *nft.table(TABLE),
        nft.prefix_map(TABLE, OCTETS, 1),
        nft.chain(TABLE, "out", "route", nft.LOCAL_OUT),
        nft.chain(TABLE, "in", "filter", nft.LOCAL_IN),
        *(nft.rule(TABLE, "out", expressions, command) for expressions, command in out),
        *(
            nft.rule(TABLE, "in", expressions, command)
            for expressions, command in taken_in(address, CARRYING)
        ),
    ]


def at_once(octets: Mapping[Prefix, int]) -> dict[Prefix, int]:
    """What `octets` come to when they are followed twice: a packet that has reached its proxy may
    have to be rerouted at once."""
    combined = dict(octets)
    second: dict[int, list[tuple[Prefix, int]]] = {}
    for prefix, octet in octets.items():
        second.setdefault(prefix.network >> 24, []).append((prefix, octet))
    for prefix, octet in octets.items():
        for after, last in second.get(octet, ()):
            pair = (prefix, first_octets.prefix(after, prefix.network >> 24))
            wide, narrow = sorted(pair, key=lambda one: one.length)
            if wide.holds(narrow.network):
                combined[narrow] = last
    return combined


class PrefixRewriting(LinuxCapability):
    """What packets carry, at one server."""

    actions = (SetPrefixRewrite,)

    def __init__(
        self,
        address: int,
        octets: Sequence[int],
        ttl: int,
        routes: netlink.Socket,
        transit: TransitRewriting,
    ) -> None:
        """Begin, in the namespace of the calling thread, with no prefix rewritten; `routes` is a
        socket there.

        octets: all that the addresses of packets may begin with, first that of packets that leave
            their source.
        ttl: how many hops packets of our own may make, unless they say otherwise themselves.
        """
        self._octets: dict[Prefix, int] = {}  # as wanted
        self._held: dict[Prefix, int] = {}  # as the kernel has them
        self._direct = octets[0]
        take([first_octets.with_octet(address, octet) for octet in octets], routes)
        DEFAULT_TTL.write_text(f"{ttl}")
        self._tables = nft.Ruleset()
        self._tables.change(rules(address, octets[0]))
        self._transit = transit
        transit.begin(By.PREFIX)

    def sockets(self) -> list[socket.socket]:
        return [self._tables.socket]

    def apply(self, actions: Sequence[SetPrefixRewrite]) -> str:
        self.set(actions)
        count = sum(action.first_octet is not None for action in actions)
        return f"destinations rewritten: {count} prefixes more, {len(actions) - count} fewer"

    def reconcile(self) -> None:
        self.set(())

    def set(self, changes: Iterable[SetPrefixRewrite]) -> None:
        """Make the changes, and those that were refused before, all at once; NetlinkError if the
        kernel refuses one, and then none is made."""
        for change in changes:
            if change.first_octet is None:
                self._octets.pop(change.prefix, None)
            else:
                self._octets[change.prefix] = change.first_octet
        if self._octets != self._held:
            own = {
                prefix: octet
                for prefix, octet in self._octets.items()
                if prefix.network >> 24 == self._direct
            }
            self._tables.change(nft.prefixes(TABLE, OCTETS, own))
            self._transit.set_prefixes(at_once(self._octets))
            self._held = dict(self._octets)
