"""First octets that depend on a packet's flow: the next hops of TAR (daemons/tar/daemon.py).

A packet that is forwarded by its flow's state carries 64 + i in place of 10.  The route 64 + i
leads to one neighbour, whatever the packet's destination.  Other packets carry 64.  Before the
lookup of a route, the first octet changes:

    a server's own packets     10.x.y.z becomes 64.x.y.z, and then gets the octet that the map
                               `flows` has for the flow; rules of nf_tables at output
    packets in transit         the octet of the flow (transit_rewrite.py), else 64
    packets to the server      64.x.y.z becomes 10.x.y.z, also where an ICMP error quotes it; rules
                               at input

A flow is addresses, protocol and, for TCP and UDP, ports; a fragment without ports is mostly of no
known flow.  A flow of the server's own that was not seen for AGAIN_MS is logged to the daemon, so
the daemon knows the flows in use.  The daemon removes states; a new daemon begins without any.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator, Mapping

from weft.daemons.core.actions import FiveTuple, SetFlowRewrite
from weft.daemons.core.contract import FlowInUse
from weft.daemons.routing import route_addresses
from weft.testbed.data_plane.source_rewrite import (
    IP_DESTINATION,
    IP_HEADER_BYTES,
    IP_PROTOCOL,
    IP_SOURCE,
    LOG_GROUP,
    MOST_SEEN,
    STEERED_ADDRESSES,
    TABLE,
    Elements,
    NftRule,
    OwnPackets,
    accept_other_destinations,
    input_rules,
    set_first_octet,
    store_destination,
    tables,
)
from weft.testbed.data_plane.transit_rewrite import OctetKey, TransitRewriting
from weft.testbed.linux import netlink, nft
from weft.testbed.linux.netlink import NetlinkMessage

FLOWS, SEEN = "flows", "seen"
FLOW_WORDS = "ip saddr . ip daddr & 0.255.255.255 | 64.0.0.0 . ip protocol . @th,0,32"
PORTS_BYTES = 4
SHOWN_BYTES = IP_HEADER_BYTES + PORTS_BYTES
AGAIN_MS = 1000  # daemons/tar/daemon.py, ACTIVE_S, relies on it
WITH_PORTS = (socket.IPPROTO_TCP, socket.IPPROTO_UDP)
DIRECT = route_addresses.FIRST


def rules(address: int) -> list[NetlinkMessage]:
    """Return the changes that make a server send and receive packets of flows, none known yet."""
    show = [
        nft.unless_in(SEEN),
        nft.remember_in(SEEN),
        nft.log(LOG_GROUP, SHOWN_BYTES),
    ]
    log = f"log group {LOG_GROUP} snaplen {SHOWN_BYTES}"
    show_words = f"{FLOW_WORDS} != @{SEEN} add @{SEEN} {{ {FLOW_WORDS} }} {log}"
    look_up = [nft.look_up(FLOWS), store_destination(1), nft.accept()]
    look_up_words = f"@nh,128,8 set {FLOW_WORDS} map @{FLOWS} accept"
    output: list[NftRule] = [
        *accept_other_destinations(),
        set_first_octet(DIRECT),
        *(([*key, *show], f"{words} {show_words}") for key, words in keys()),
        *(([*key, *look_up], f"{words} {look_up_words}") for key, words in keys()),
    ]
    sets = [
        TABLE.map(FLOWS, 1, nft.FLOW, nft.OCTET),
        TABLE.memory(SEEN, 2, nft.FLOW, AGAIN_MS, MOST_SEEN),
    ]
    return tables(sets, output, input_rules(address, STEERED_ADDRESSES))


def keys() -> list[NftRule]:
    """Return beginnings of rules that load the packet's flow, one for each kind of protocol."""
    source, destination, protocol, ports = nft.WORDS
    load_protocol = nft.load(nft.NETWORK_HEADER, IP_PROTOCOL, 1, protocol)
    load_addresses = [
        nft.load(nft.NETWORK_HEADER, IP_SOURCE, 4, source),
        nft.load(nft.NETWORK_HEADER, IP_DESTINATION, 4, destination),
        nft.mask(route_addresses.LABEL, DIRECT << 24, register=destination),
    ]
    load_ports = nft.load(nft.TRANSPORT_HEADER, 0, 4, ports)
    beginnings: list[NftRule] = []
    for number in WITH_PORTS:
        is_protocol = nft.compare(nft.EQUAL, bytes([number]), protocol)
        expressions = [load_protocol, is_protocol, *load_addresses, load_ports]
        beginnings.append((expressions, f"ip protocol {number}"))
    without_ports = [nft.compare(nft.UNEQUAL, bytes([number]), protocol) for number in WITH_PORTS]
    no_ports = nft.constant(bytes(4), ports)
    expressions = [load_protocol, *without_ports, *load_addresses, no_ports]
    return [*beginnings, (expressions, "ip protocol != { 6, 17 }")]


def key_of(flow: FiveTuple) -> bytes:
    """Return the register's content for a flow."""
    steered = route_addresses.with_octet(flow.destination, DIRECT)
    return struct.pack(">IIBxxxI", flow.source, steered, flow.protocol, flow.ports)


def _element(flow: FiveTuple, octet: int | None) -> NetlinkMessage:
    value = None if octet is None else bytes([octet])
    return TABLE.element(FLOWS, key_of(flow), value)


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
        """Install the rules, with no flow known."""
        super().__init__(
            [route_addresses.with_octet(address, DIRECT)], rules(address), routes, ports
        )
        self._address = address
        self._flows = Elements(self._tables, _element)
        self._transit = transit
        transit.begin(OctetKey.FLOW)

    def set(self, changes: Iterable[SetFlowRewrite]) -> None:
        """Apply these changes, and those refused before.

        The changes of the server's own flows are one transaction.
        """
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

    def used(self) -> Iterator[FlowInUse]:
        for packet in self._shown():
            source, destination = struct.unpack_from(">II", packet, IP_SOURCE)
            protocol, after = packet[IP_PROTOCOL], (packet[0] & 15) * 4
            has_ports = protocol in WITH_PORTS and len(packet) >= after + PORTS_BYTES
            ports = struct.unpack_from(">I", packet, after)[0] if has_ports else 0
            own = route_addresses.server_address(destination)
            yield FlowInUse(FiveTuple(source, own, protocol, ports))
