"""Steering of a server's own packets to the paths that its protocol chooses.

On the wire a packet carries an address that encodes its proxy (daemons/routing/route_addresses.py),
and servers on its path forward it by their routes.  Rules of nf_tables change the address at the
two hooks that only a server's own packets pass:

    output   10.x.y.z becomes the entry of the map `steered`, else 64.x.y.z; then the kernel looks
             up the route again
    input    a steered address of this server becomes 10.x.y.z, also where an ICMP error quotes it

An address that was not seen for AGAIN_MS is logged to the daemon, so the daemon knows the
destinations in use.

The alternatives cost more on servers in between: ns per packet and hop, and bytes per packet.

    forwarding, and steered addresses                 800 ns,  0 bytes
    SRv6, encapsulation, IPv4 inside                  940 ns, 96 bytes; traceroute shows one hop
    IPv4 option with waypoints, eBPF at each port    1190 ns, 12 bytes
    a policy rule (iif lo) before any of these       1210 ns

`weft doctor` tests whether the kernel has what this needs of nf_tables (rewriting).
"""

from __future__ import annotations

import errno
import socket
import struct
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from weft.daemons.core.actions import SetSourceRewrite
from weft.daemons.core.contract import DaemonEvent, DestinationInUse, Measured, Refused
from weft.daemons.routing import route_addresses
from weft.testbed.data_plane.capabilities import EventSource, LinuxCapability, Wakes
from weft.testbed.linux import icmp, netlink, nft
from weft.testbed.linux.fib import RTA_DST, RTA_OIF, RTMSG, RTPROT_WEFT
from weft.testbed.linux.netlink import NetlinkMessage
from weft.topologies.core.address import SERVER_BLOCK, dotted

TABLE = nft.NftTable("weft")
STEERED, SEEN = "steered", "seen"
AGAIN_MS = 4000
MOST_SEEN = 65_536
LOOPBACK = 1
RT_TABLE_LOCAL, RT_SCOPE_HOST, RTN_LOCAL = 255, 254, 2
NFLOG, NFULNL_MSG_PACKET, NFULNL_MSG_CONFIG = 4, 0, 1
NFULA_CFG_CMD, NFULA_CFG_MODE, NFULA_CFG_QTHRESH, NFULA_PAYLOAD = 1, 2, 5, 9
BIND, COPY_PACKET = 1, 2
LOG_GROUP = 6330
MOST_SHOWN_BYTES = 64
IP_HEADER_BYTES = 20
IP_SOURCE, IP_DESTINATION, IP_CHECKSUM, IP_PROTOCOL = 12, 16, 10, 9
ICMP_TYPE, ICMP_CHECKSUM, ICMP_QUOTED_DESTINATION = 0, 2, 8 + 16
FIRST_OCTET_MASK = 0xFF000000
MEASURE_S = 1.0
ACCEPT_LOCAL = Path("/proc/sys/net/ipv4/conf/all/accept_local")


Key = TypeVar("Key")
NftRule = tuple[Sequence[bytes], str]  # expressions, and the same in nft's language


class CarriedAddresses(NamedTuple):
    """A range of destinations: expressions that match it in the register, and nft's words."""

    only: Sequence[bytes]
    words: str


STEERED_ADDRESSES = CarriedAddresses(
    [nft.mask(0xC0000000, 0), nft.compare(nft.EQUAL, struct.pack(">I", 0x40000000))], "64.0.0.0/2"
)
LOOPBACK_ONLY = nft.compare(nft.EQUAL, struct.pack("=I", LOOPBACK))
FROM_ITSELF = [nft.load_meta(nft.INPUT_DEVICE), LOOPBACK_ONLY, nft.accept()]
TO_ITSELF = [nft.load_meta(nft.OUTPUT_DEVICE), LOOPBACK_ONLY, nft.accept()]


def load_destination() -> bytes:
    """Return the expression that loads the packet's destination into the register."""
    return nft.load(nft.NETWORK_HEADER, IP_DESTINATION, 4)


def store_destination(size: int = 4) -> bytes:
    """Return the expression that stores the register into the destination's first bytes."""
    return nft.store(nft.NETWORK_HEADER, IP_DESTINATION, size, IP_CHECKSUM, pseudo_header=True)


def accept_other_destinations() -> list[NftRule]:
    """Return rules at output that accept packets to this server and to no server."""
    other = [
        load_destination(),
        nft.mask(FIRST_OCTET_MASK, 0),
        nft.compare(nft.UNEQUAL, struct.pack(">I", SERVER_BLOCK)),
        nft.accept(),
    ]
    return [(TO_ITSELF, "oif lo accept"), (other, "ip daddr != 10.0.0.0/8 accept")]


def set_first_octet(octet: int) -> NftRule:
    """Return the rule that replaces the first octet of a packet's destination."""
    mask = nft.mask(route_addresses.LABEL, octet << 24)
    words = f"ip daddr set ip daddr & 0.255.255.255 | {octet}.0.0.0"
    return [load_destination(), mask, store_destination()], words


def tables(
    sets: Iterable[NetlinkMessage], output: Iterable[NftRule], input_: Iterable[NftRule]
) -> list[NetlinkMessage]:
    """Return the changes that make the table with these sets and chains at output and input."""
    return [
        *TABLE.replace(),
        *sets,
        TABLE.chain("out", "route", nft.LOCAL_OUT),
        TABLE.chain("in", "filter", nft.LOCAL_IN),
        *(TABLE.rule("out", *rule) for rule in output),
        *(TABLE.rule("in", *rule) for rule in input_),
    ]


def rules(address: int) -> list[NetlinkMessage]:
    """Return the changes that make a server send and receive steered packets, none steered yet."""
    remember = [
        load_destination(),
        nft.unless_in(SEEN),
        nft.remember_in(SEEN),
        nft.log(LOG_GROUP, IP_HEADER_BYTES),
    ]
    log = f"log group {LOG_GROUP} snaplen {IP_HEADER_BYTES}"
    steer = [load_destination(), nft.look_up(STEERED), store_destination(), nft.accept()]
    output: list[NftRule] = [
        *accept_other_destinations(),
        (remember, f"ip daddr != @{SEEN} add @{SEEN} {{ ip daddr }} {log}"),
        (steer, f"ip daddr set ip daddr map @{STEERED} accept"),
        set_first_octet(route_addresses.FIRST),
    ]
    sets = [
        TABLE.map(STEERED, 1, nft.ADDRESS, nft.ADDRESS),
        TABLE.memory(SEEN, 2, nft.ADDRESS, AGAIN_MS, MOST_SEEN),
    ]
    return tables(sets, output, input_rules(address, STEERED_ADDRESSES))


def input_rules(address: int, carried: CarriedAddresses) -> list[NftRule]:
    """Return the rules at input of the server with this address.

    A packet from another server to an address of `carried` gets this server's own address.  An ICMP
    error, from any source, quotes servers' own addresses.
    """
    quoted = nft.load(nft.TRANSPORT_HEADER, ICMP_QUOTED_DESTINATION, 4)
    quote_own_address = [
        nft.load(nft.NETWORK_HEADER, IP_PROTOCOL, 1),
        nft.compare(nft.EQUAL, bytes([socket.IPPROTO_ICMP])),
        nft.load(nft.TRANSPORT_HEADER, ICMP_TYPE, 1),
        nft.mask(0xF7, 0, size=1),  # 3, unreachable, and 11, time exceeded
        nft.compare(nft.EQUAL, bytes([icmp.UNREACHABLE])),
        quoted,
        *carried.only,
        quoted,
        nft.mask(route_addresses.LABEL, SERVER_BLOCK),
        nft.store(nft.TRANSPORT_HEADER, ICMP_QUOTED_DESTINATION, 4, ICMP_CHECKSUM),
    ]
    quote_words = (
        f"icmp type {{ 3, 11 }} @th,192,32 {carried.words} @th,192,32 set @th,192,32 & "
        f"0xffffff | 0xa000000"
    )
    own_address = nft.constant(struct.pack(">I", address))
    restore = [load_destination(), *carried.only, own_address, store_destination()]
    return [
        (quote_own_address, quote_words),
        (FROM_ITSELF, "iif lo accept"),  # also 127.0.0.1, which `carried` may contain
        (restore, f"ip daddr {carried.words} ip daddr set {dotted(address)}"),
    ]


def local_route(address: int) -> NetlinkMessage:
    """Return the change that makes `address` an address of this server."""
    body = RTMSG.pack(2, 32, 0, 0, RT_TABLE_LOCAL, RTPROT_WEFT, RT_SCOPE_HOST, RTN_LOCAL, 0)
    body += netlink.network_u32(RTA_DST, address) + netlink.u32(RTA_OIF, LOOPBACK)
    command = f"ip route replace local {dotted(address)} dev lo proto {RTPROT_WEFT} table local"
    return NetlinkMessage(netlink.RTM_NEWROUTE, netlink.REPLACE, body, command)


def take(addresses: Iterable[int], routes: netlink.Socket) -> None:
    """Make these addresses this server's own; `routes` is a socket in the thread's namespace.

    With such routes the kernel also looks up the source of every packet (fib_validate_source() in
    net/ipv4/fib_frontend.c), which costs as much as the route itself, unless it accepts packets
    with its own source.  A rerouted packet may pass its source again, so it must.
    """
    routes.request([local_route(address) for address in addresses])
    ACCEPT_LOCAL.write_text("1")


class Elements(Generic[Key]):
    """A map of nf_tables: the kernel's entries, and the changes to make.

    tables: the ruleset of the map.
    element: returns the change that adds a key with a value, or removes it for None.
    """

    def __init__(
        self, tables: nft.Ruleset, element: Callable[[Key, int | None], NetlinkMessage]
    ) -> None:
        self._tables, self._element = tables, element
        self._installed: dict[Key, int] = {}  # as the kernel has them
        self._changed: dict[Key, int | None] = {}

    def want(self, changes: Mapping[Key, int | None]) -> None:
        """Add changes for the next make()."""
        self._changed |= changes

    def make(self) -> None:
        """Make the changes, and those refused before, in one transaction.

        Raises:
            NetlinkError: the kernel refused one, and none is made.
        """
        messages, values = [], dict(self._installed)
        for key, value in self._changed.items():
            if values.pop(key, None) is not None:
                messages.append(self._element(key, None))
            if value is not None:
                messages.append(self._element(key, value))
                values[key] = value
        if messages:
            self._tables.change(messages)
        self._installed = values
        self._changed.clear()


class OwnPackets(LinuxCapability):
    """Rewriting of one server's own packets.

    news: a socket, readable when a destination or a flow is in use; see used().
    errors: a socket, readable when a packet of this server was refused; see refused().
    """

    def __init__(
        self,
        addresses: Iterable[int],
        rules: Iterable[NetlinkMessage],
        routes: netlink.Socket,
        ports: Mapping[int, int],
    ) -> None:
        """Install the rules in the namespace of the calling thread.

        Args:
            addresses: further addresses of this server.
            rules: changes of nf_tables.
            routes: a netlink socket in the namespace.
            ports: port numbers by interface index.
        """
        self._routes = routes
        self._ports = ports
        self._sent_bytes: dict[int, int] = {}
        self._measured_s = -inf
        take(addresses, routes)
        self._tables = nft.Ruleset()
        self._tables.change(rules)
        self.news = listen(LOG_GROUP)
        self.errors = icmp.receiver(icmp.UNREACHABLE)

    @abstractmethod
    def set(self, changes: Iterable[Any]) -> None:
        """Apply these changes, and those refused before, in one transaction.

        Raises:
            NetlinkError: the kernel refused one, and none is applied.
        """

    @abstractmethod
    def used(self) -> Iterator[DaemonEvent]:
        """Return the destinations or flows of packets logged since the last call."""

    def apply(self, actions: Sequence[Any]) -> str:
        self.set(actions)
        return ""

    def reconcile(self) -> None:
        self.set(())

    def sources(self) -> list[EventSource]:
        return [
            EventSource(self.news, self.used, Wakes.NEVER),
            # A refused packet may be the first to its destination.
            EventSource(self.errors, lambda: chain(self.used(), self.refused()), Wakes.ONCE_A_TICK),
        ]

    def look(self, now: float) -> list[DaemonEvent]:
        loads = self.loads(now)
        return [Measured(loads)] if loads else []

    def sockets(self) -> list[socket.socket]:
        return [self._tables.socket, self.news, self.errors]

    def loads(self, now: float) -> dict[int, int]:
        """Return the rate sent by each port since the last call, in kbit/s.

        Empty if the last call was less than MEASURE_S ago.
        """
        past_s = now - self._measured_s
        if past_s < MEASURE_S:
            return {}
        self._measured_s = now
        loads = {}
        for index, counters in self._routes.link_counters().items():
            if (port := self._ports.get(index)) is not None:
                sent = counters[3]
                loads[port] = int((sent - self._sent_bytes.get(port, sent)) * 8 / 1000 / past_s)
                self._sent_bytes[port] = sent
        return loads

    def _shown(self) -> Iterator[bytes]:
        """Return the first bytes of each packet that rules have logged."""
        with suppress(BlockingIOError):
            while True:
                try:
                    data = self.news.recv(1 << 16)
                except OSError as error:
                    if error.errno != errno.ENOBUFS:  # lost packets are logged again
                        raise
                    continue
                for kind, _, _, body in netlink.split(data):
                    if kind == NFLOG << 8 | NFULNL_MSG_PACKET:
                        yield netlink.attributes(body, nft.GENMSG.size)[NFULA_PAYLOAD]

    def refused(self) -> Iterator[Refused]:
        """Return the destinations, as servers' own addresses, of this server's refused packets."""
        while received := icmp.receive(self.errors):
            packet, _ = received
            quoted = (packet[0] & 15) * 4 + 8
            code = packet[quoted - 7]
            if code in REFUSALS and len(packet) >= quoted + IP_HEADER_BYTES:
                yield Refused(*struct.unpack_from(">I", packet, quoted + IP_DESTINATION))


def _steer(destination: int, address: int | None) -> NetlinkMessage:
    value = None if address is None else struct.pack(">I", address)
    return TABLE.element(STEERED, struct.pack(">I", destination), value)


class SourceRewriting(OwnPackets):
    """Steering of one server's own packets by destination."""

    actions = (SetSourceRewrite,)

    def __init__(
        self, address: int, ways: int, routes: netlink.Socket, ports: Mapping[int, int]
    ) -> None:
        """Install the rules with no destination steered.

        Args:
            address: of the server.
            ways: number of first octets, from 64 on.
            routes: a netlink socket in the namespace of the calling thread.
            ports: port numbers by interface index.
        """
        super().__init__(
            [route_addresses.address(address, p) for p in range(ways)],
            rules(address),
            routes,
            ports,
        )
        self._steered = Elements(self._tables, _steer)

    def set(self, changes: Iterable[SetSourceRewrite]) -> None:
        self._steered.want({change.destination: change.rewritten for change in changes})
        self._steered.make()

    def used(self) -> Iterator[DestinationInUse]:
        for packet in self._shown():
            yield DestinationInUse(*struct.unpack_from(">I", packet, IP_DESTINATION))


REFUSALS = (0, 1)  # network, host unreachable


def listen(group: int) -> socket.socket:
    """Return a socket that receives, without delay, the packets that rules log to `group`."""
    settings = (
        netlink.attribute(NFULA_CFG_CMD, struct.pack("=B", BIND)),
        netlink.attribute(NFULA_CFG_MODE, struct.pack(">IBx", MOST_SHOWN_BYTES, COPY_PACKET)),
        netlink.network_u32(NFULA_CFG_QTHRESH, 1),
    )
    kind, header = NFLOG << 8 | NFULNL_MSG_CONFIG, nft.GENMSG.pack(nft.NFPROTO_IPV4, 0, group)
    listener = netlink.Socket(family=nft.NETLINK_NETFILTER)
    listener.request(
        NetlinkMessage(kind, 0, header + setting, f"nfnetlink_log group {group}")
        for setting in settings
    )
    listener.socket.setblocking(False)
    return listener.socket
