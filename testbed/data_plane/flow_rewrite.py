"""The next hops of flows (daemons/tar/daemon.py), on the kernel.

What is forwarded by a flow's state carries 64 + i in place of 10, where the route 64 + i leads to
one neighbour, whatever the packet's destination; what is not, 64.  Before a route is looked up,

    packets of its own   10.x.y.z becomes 64.x.y.z; then the first octet is what the map `flows` has
                         for the flow, if anything; by rules of nf_tables at output
    of others            the first octet becomes what transit_rewrite.py has for the flow, else 64,
    whatever it was for itself           64.x.y.z becomes 10.x.y.z, and errors are about packets for
    10.x.y.z; by rules at input

A flow is the addresses, the protocol and, of TCP and UDP, the ports; a fragment that has no ports
mostly goes as though nothing were known of it.  One of its own that was not seen for AGAIN_MS is
shown to the daemon, by which it knows what is in use.

Why so: a mark from the map, and policy rules that choose a table by it, would do the same for two
route look-ups a packet; addresses are measured in source_rewrite.py.  The daemon takes states out
when their time has come, and with a new daemon nothing is known.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator, Mapping

from weft.daemons.core.actions import FiveTuple, SetFlowRewrite
from weft.daemons.core.events import DaemonEvent, FlowInUse
from weft.daemons.routing import first_octets, proxy_addresses
from weft.testbed.data_plane.source_rewrite import (
    FIRST_OCTET_MASK,
    IP_CHECKSUM,
    IP_DESTINATION,
    IP_HEADER_BYTES,
    IP_PROTOCOL,
    IP_SOURCE,
    LOG_GROUP,
    MOST_SEEN,
    STEERED_ONES,
    TO_ITSELF,
    Elements,
    NftRule,
    OwnPackets,
    taken_in,
)
from weft.testbed.data_plane.transit_rewrite import By, TransitRewriting
from weft.testbed.linux import netlink, nft
from weft.testbed.linux.netlink import NetlinkMessage
from weft.topologies.core.address import SERVER_BLOCK

TABLE, FLOWS, SEEN = "weft", "flows", "seen"
FLOW_WORDS = "ip saddr . ip daddr & 0.255.255.255 | 64.0.0.0 . ip protocol . @th,0,32"
PORTS_BYTES = 4
SHOWN_BYTES = IP_HEADER_BYTES + PORTS_BYTES
AGAIN_MS = 1000  # daemons/tar/daemon.py, ACTIVE_S, relies on it
WITH_PORTS = (socket.IPPROTO_TCP, socket.IPPROTO_UDP)
DIRECT = first_octets.FIRST


def rules(address: int) -> list[NetlinkMessage]:
    """The changes that make a server with this address send and take packets of flows, none of them
    known yet."""
    destination = nft.load(nft.NETWORK_HEADER, IP_DESTINATION, 4)
    rewrite = nft.store(nft.NETWORK_HEADER, IP_DESTINATION, 4, IP_CHECKSUM, pseudo_header=True)
    first_octet = nft.store(nft.NETWORK_HEADER, IP_DESTINATION, 1, IP_CHECKSUM, pseudo_header=True)
    begins = [destination, nft.mask(FIRST_OCTET_MASK, 0)]
    direct = (
        [nft.mask(first_octets.LABEL, DIRECT << 24), rewrite],
        f"ip daddr set ip daddr & 0.255.255.255 | {DIRECT}.0.0.0",
    )
    onward = [
        (
            [*key, nft.look_up(FLOWS), first_octet, nft.accept()],
            f"{words} @nh,128,8 set {FLOW_WORDS} map @{FLOWS} accept",
        )
        for key, words in keys()
    ]
    log = f"log group {LOG_GROUP} snaplen {SHOWN_BYTES}"
    shown = [
        (
            [*key, nft.unless_in(SEEN), nft.remember_in(SEEN), nft.log(LOG_GROUP, SHOWN_BYTES)],
            f"{words} {FLOW_WORDS} != @{SEEN} add @{SEEN} {{ {FLOW_WORDS} }} {log}",
        )
        for key, words in keys()
    ]
    out: list[NftRule] = [
        (TO_ITSELF, "oif lo accept"),
        (
            [*begins, nft.compare(nft.UNEQUAL, struct.pack(">I", SERVER_BLOCK)), nft.accept()],
            "ip daddr != 10.0.0.0/8 accept",
        ),
        ([destination, *direct[0]], direct[1]),
        *shown,
        *onward,
    ]
    return [
        *nft.table(TABLE),
        nft.flow_map(TABLE, FLOWS, 1),
        nft.flow_memory(TABLE, SEEN, 2, AGAIN_MS, MOST_SEEN),
        nft.chain(TABLE, "out", "route", nft.LOCAL_OUT),
        nft.chain(TABLE, "in", "filter", nft.LOCAL_IN),
        *(
            nft.rule(TABLE, chain, expressions, command)
            for chain, listed in (("out", out), ("in", taken_in(address, STEERED_ONES)))
            for expressions, command in listed
        ),
    ]


def keys() -> list[NftRule]:
    """Ways to put the packet's flow into the register, each going on only with the packets that it
    is for."""
    source, destination, protocol, ports = nft.WORDS
    which = nft.load(nft.NETWORK_HEADER, IP_PROTOCOL, 1, protocol)
    ends = [
        nft.load(nft.NETWORK_HEADER, IP_SOURCE, 4, source),
        nft.load(nft.NETWORK_HEADER, IP_DESTINATION, 4, destination),
        nft.mask(first_octets.LABEL, DIRECT << 24, register=destination),
    ]
    keyed: list[NftRule] = []
    for number in WITH_PORTS:
        is_protocol = nft.compare(nft.EQUAL, bytes([number]), protocol)
        keyed.append(
            (
                [which, is_protocol, *ends, nft.load(nft.TRANSPORT_HEADER, 0, 4, ports)],
                f"ip protocol {number}",
            )
        )
    without = [nft.compare(nft.UNEQUAL, bytes([number]), protocol) for number in WITH_PORTS]
    keyed.append(
        ([which, *without, *ends, nft.constant(bytes(4), ports)], "ip protocol != { 6, 17 }")
    )
    return keyed


def key_of(flow: FiveTuple) -> bytes:
    """What the register then has."""
    steered = first_octets.with_octet(flow.destination, DIRECT)
    return struct.pack(">IIBxxxI", flow.source, steered, flow.protocol, flow.ports)


def _element(flow: FiveTuple, octet: int | None) -> NetlinkMessage:
    return nft.flow(TABLE, FLOWS, key_of(flow), octet)


class FlowRewriting(OwnPackets):
    """Flows at one server."""

    actions = (SetFlowRewrite,)

    def __init__(
        self,
        address: int,
        routes: netlink.Socket,
        ports: Mapping[int, int],
        transit: TransitRewriting,
    ) -> None:
        """Begin with no flow known."""
        super().__init__([first_octets.with_octet(address, DIRECT)], rules(address), routes, ports)
        self._address = address
        self._flows = Elements(self._tables, _element)
        self._transit = transit
        transit.begin(By.FLOW)

    def set(self, changes: Iterable[SetFlowRewrite]) -> None:
        """Make the changes, and those that were refused before: those of its own flows all at once,
        and all of them or none."""
        own: dict[FiveTuple, int | None] = {}
        others = []
        for change in changes:
            if change.flow.source == self._address:
                own[change.flow] = change.first_octet
            else:
                others.append(change)
        self._flows.want(own)
        for change in others:
            self._transit.set_flow(change.flow, change.first_octet)
        self._flows.make()

    def used(self) -> Iterator[DaemonEvent]:
        return map(FlowInUse, self.in_use())

    def in_use(self) -> Iterator[FiveTuple]:
        for packet in self._shown():
            source, destination = struct.unpack_from(">II", packet, IP_SOURCE)
            protocol, after = packet[IP_PROTOCOL], (packet[0] & 15) * 4
            has_ports = protocol in WITH_PORTS and len(packet) >= after + PORTS_BYTES
            ports = struct.unpack_from(">I", packet, after)[0] if has_ports else 0
            yield FiveTuple(source, proxy_addresses.server_address(destination), protocol, ports)
