"""A server's own packets, kept on the paths that its protocol chooses.

On the wire a packet carries an address that says by which proxy it goes
(daemons/routing/proxy_addresses.py), and servers on its way forward it by their routes like any
other.  Here it is put in and taken out, by rules of nf_tables at the two places that only a
server's own packets pass:

    output   10.x.y.z becomes what the map `steered` has for it, else 64.x.y.z; then the kernel
    looks for its route anew input    a packet to a steered address of this server was for 10.x.y.z,
    and errors are about packets for 10.x.y.z

An address that was not seen for AGAIN_MS is shown to the daemon, by which it knows what is in use.

Why so.  Measured on a chain of namespaces, ns per packet and hop on servers in between, where plain
forwarding costs 800, and bytes that a packet grows by:

    steered addresses (this)                         800      0   MTU stays, ping and traceroute
    show every hop SRv6, encap, IPv4 inside                         940     96   traceroute shows
    one hop; a second set of routes, IPv6 IPv4 option with waypoints, eBPF at each port    1190
    12   and 1015 for packets that are not steered
    policy rule (iif lo) before any of these         1210     -   for every packet; without it,
                                                             routes to steered destinations would
                                                             also catch packets of others

IPIP and GRE are not in every kernel, and would nest twice (40 bytes).  Whether a kernel has what
this
takes of nf_tables, `weft doctor` tries (rewriting).
"""

from __future__ import annotations

import errno
import socket
import struct
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from weft.daemons.core.actions import SetSourceRewrite
from weft.daemons.core.events import DaemonEvent, DestinationInUse, Measured, Refused
from weft.daemons.routing import first_octets, proxy_addresses
from weft.testbed.data_plane.capability import EventSource, LinuxCapability, Wakes
from weft.testbed.linux import icmp, netlink, nft
from weft.testbed.linux.fib import RTA_DST, RTA_OIF, RTMSG, RTPROT_WEFT
from weft.testbed.linux.netlink import NetlinkMessage
from weft.topologies.core.address import SERVER_BLOCK, dotted

TABLE, STEERED, SEEN = "weft", "steered", "seen"
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
NftRule = tuple[Sequence[bytes], str]  # expressions, and nft's own words for them


class CarriedAddresses(NamedTuple):
    """Addresses that packets carry on their way: what goes on only with these in the register, and
    nft's words."""

    only: Sequence[bytes]
    words: str


STEERED_ONES = CarriedAddresses(
    [nft.mask(0xC0000000, 0), nft.compare(nft.EQUAL, struct.pack(">I", 0x40000000))], "64.0.0.0/2"
)
FROM_ITSELF = [
    nft.input_device(),
    nft.compare(nft.EQUAL, struct.pack("=I", LOOPBACK)),
    nft.accept(),
]
TO_ITSELF = [nft.output_device(), nft.compare(nft.EQUAL, struct.pack("=I", LOOPBACK)), nft.accept()]


def rules(address: int) -> list[NetlinkMessage]:
    """The changes that make a server with this address send and take steered packets, none of them
    steered yet."""
    destination = nft.load(nft.NETWORK_HEADER, IP_DESTINATION, 4)
    rewrite = nft.store(nft.NETWORK_HEADER, IP_DESTINATION, 4, IP_CHECKSUM, pseudo_header=True)
    direct = first_octets.FIRST << 24
    ours = [
        destination,
        nft.mask(FIRST_OCTET_MASK, 0),
        nft.compare(nft.UNEQUAL, struct.pack(">I", SERVER_BLOCK)),
    ]
    out: list[NftRule] = [
        (TO_ITSELF, "oif lo accept"),
        ([*ours, nft.accept()], "ip daddr != 10.0.0.0/8 accept"),
        (
            [
                destination,
                nft.unless_in(SEEN),
                nft.remember_in(SEEN),
                nft.log(LOG_GROUP, IP_HEADER_BYTES),
            ],
            (
                f"ip daddr != @{SEEN} add @{SEEN} {{ ip daddr }} log group {LOG_GROUP} snaplen "
                f"{IP_HEADER_BYTES}"
            ),
        ),
        (
            [destination, nft.look_up(STEERED), rewrite, nft.accept()],
            f"ip daddr set ip daddr map @{STEERED} accept",
        ),
        (
            [destination, nft.mask(first_octets.LABEL, direct), rewrite],
            "ip daddr set ip daddr & 0.255.255.255 | 64.0.0.0",
        ),
    ]
    return [
        *nft.table(TABLE),
        nft.address_map(TABLE, STEERED, 1),
        nft.address_memory(TABLE, SEEN, 2, AGAIN_MS, MOST_SEEN),
        nft.chain(TABLE, "out", "route", nft.LOCAL_OUT),
        nft.chain(TABLE, "in", "filter", nft.LOCAL_IN),
        *(nft.rule(TABLE, "out", expressions, command) for expressions, command in out),
        *(
            nft.rule(TABLE, "in", expressions, command)
            for expressions, command in taken_in(address, STEERED_ONES)
        ),
    ]


def taken_in(address: int, carried: CarriedAddresses) -> list[NftRule]:
    """Rules at input for the server with this address: what comes from others with an address of
    `carried` was for its own, and errors, wherever they come from, are about packets for servers'
    own addresses."""
    destination = nft.load(nft.NETWORK_HEADER, IP_DESTINATION, 4)
    rewrite = nft.store(nft.NETWORK_HEADER, IP_DESTINATION, 4, IP_CHECKSUM, pseudo_header=True)
    quoted = nft.load(nft.TRANSPORT_HEADER, ICMP_QUOTED_DESTINATION, 4)
    error = [
        nft.load(nft.NETWORK_HEADER, IP_PROTOCOL, 1),
        nft.compare(nft.EQUAL, bytes([socket.IPPROTO_ICMP])),
        nft.load(nft.TRANSPORT_HEADER, ICMP_TYPE, 1),
        nft.mask(0xF7, 0, size=1),  # 3, unreachable, and 11, time exceeded
        nft.compare(nft.EQUAL, bytes([icmp.UNREACHABLE])),
    ]
    name = nft.store(nft.TRANSPORT_HEADER, ICMP_QUOTED_DESTINATION, 4, ICMP_CHECKSUM)
    own = nft.constant(struct.pack(">I", address))
    return [
        (
            [
                *error,
                quoted,
                *carried.only,
                quoted,
                nft.mask(first_octets.LABEL, SERVER_BLOCK),
                name,
            ],
            (
                f"icmp type {{ 3, 11 }} @th,192,32 {carried.words} @th,192,32 set @th,192,32 & "
                f"0xffffff | 0xa000000"
            ),
        ),
        (FROM_ITSELF, "iif lo accept"),  # 127.0.0.1 is none of ours
        (
            [destination, *carried.only, own, rewrite],
            f"ip daddr {carried.words} ip daddr set {dotted(address)}",
        ),
    ]


def local_route(address: int) -> NetlinkMessage:
    """The change that makes `address` one of this server's own."""
    body = RTMSG.pack(2, 32, 0, 0, RT_TABLE_LOCAL, RTPROT_WEFT, RT_SCOPE_HOST, RTN_LOCAL, 0)
    body += netlink.attribute(RTA_DST, struct.pack(">I", address)) + netlink.u32(RTA_OIF, LOOPBACK)
    command = f"ip route replace local {dotted(address)} dev lo proto {RTPROT_WEFT} table local"
    return NetlinkMessage(netlink.RTM_NEWROUTE, netlink.REPLACE, body, command)


def take(addresses: Iterable[int], routes: netlink.Socket) -> None:
    """Make these addresses this server's own, in the namespace of the calling thread, where
    `routes` is a socket.

    A kernel with such routes looks every packet's source up as well (fib_validate_source() in
    net/ipv4/fib_frontend.c), which takes as long as the route itself, unless packets with its own
    source are welcome: and they are, for one that is rerouted may pass its source again.
    """
    routes.request([local_route(address) for address in addresses])
    ACCEPT_LOCAL.write_text("1")


class Elements(Generic[Key]):
    """A map that rules of nf_tables look into, by key: what the kernel has of it, and what is
    wanted.

    tables: in which it is.  element: the change that maps a key, which has nothing, to a value, or,
    if that is None, to nothing.
    """

    def __init__(
        self, tables: nft.Ruleset, element: Callable[[Key, int | None], NetlinkMessage]
    ) -> None:
        self._tables, self._element = tables, element
        self._held: dict[Key, int] = {}  # as the kernel has them
        # keys for which it may have another, and what is wanted
        self._changed: dict[Key, int | None] = {}

    def want(self, changes: Mapping[Key, int | None]) -> None:
        """Have these changes made with the next ones that are."""
        self._changed |= changes

    def make(self) -> None:
        """Make the changes that are wanted, and those that were refused before, all at once;
        NetlinkError if the kernel refuses one, and then none is made."""
        messages, values = [], dict(self._held)
        for key, value in self._changed.items():
            if values.pop(key, None) is not None:
                messages.append(self._element(key, None))
            if value is not None:
                messages.append(self._element(key, value))
                values[key] = value
        if messages:
            self._tables.change(messages)
        self._held = values
        self._changed.clear()


class OwnPackets(LinuxCapability):
    """What one server does to its own packets beside routing them, and news of them.

    news: becomes readable when a destination, or a flow, is in use; see in_use().
    errors: when a packet of this server's own was refused on its way; see refused().
    """

    def __init__(
        self,
        addresses: Iterable[int],
        rules: Iterable[NetlinkMessage],
        routes: netlink.Socket,
        ports: Mapping[int, int],
    ) -> None:
        """Begin, in the namespace of the calling thread, where `routes` is a socket.

        addresses: that are this server's, beside its own.
        rules: of nf_tables.
        ports: by interface index.
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
        """Make the changes, and those that were refused before, all at once; NetlinkError if the
        kernel refuses one, and then none is made."""

    @abstractmethod
    def in_use(self) -> Iterator[Any]:
        """What packets were sent to, of which there is news."""

    @abstractmethod
    def used(self) -> Iterator[DaemonEvent]:
        """The same, as events."""

    def apply(self, actions: Sequence[Any]) -> str:
        self.set(actions)
        return ""

    def reconcile(self) -> None:
        self.set(())

    def sources(self) -> list[EventSource]:
        # That a destination is in use can wait.
        return [
            EventSource(self.news, self.used, Wakes.NEVER),
            EventSource(self.errors, self._refusals, Wakes.ONCE_A_TICK),
        ]

    def _refusals(self) -> Iterator[DaemonEvent]:
        yield from self.used()  # what was refused may have been the first packets
        yield from map(Refused, self.refused())

    def look(self, now: float) -> list[DaemonEvent]:
        loads = self.loads(now)
        return [Measured(loads)] if loads else []

    def sockets(self) -> list[socket.socket]:
        return [self._tables.socket, self.news, self.errors]

    def loads(self, now: float) -> dict[int, int]:
        """What has left by each port since the last time, in kbit/s; nothing if that was less than
        MEASURE_S ago."""
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
        """The beginnings of packets that rules have shown."""
        with suppress(BlockingIOError):
            while True:
                try:
                    data = self.news.recv(1 << 16)
                except OSError as error:
                    if error.errno != errno.ENOBUFS:  # those that got lost are told again
                        raise
                    continue
                for kind, _, _, body in netlink.split(data):
                    if kind == NFLOG << 8 | NFULNL_MSG_PACKET:
                        yield netlink.attributes(body, nft.GENMSG.size)[NFULA_PAYLOAD]

    def refused(self) -> Iterator[int]:
        """The destinations for which a packet of ours was refused, by their own addresses."""
        while received := icmp.receive(self.errors):
            packet, _ = received
            quoted = (packet[0] & 15) * 4 + 8
            code = packet[quoted - 7]
            if code in REFUSALS and len(packet) >= quoted + IP_HEADER_BYTES:
                yield struct.unpack_from(">I", packet, quoted + IP_DESTINATION)[0]


class SourceRewriting(OwnPackets):
    """Steered packets of one server: destinations are in use, and steered."""

    actions = (SetSourceRewrite,)

    def __init__(
        self, address: int, ways: int, routes: netlink.Socket, ports: Mapping[int, int]
    ) -> None:
        """Begin with nothing steered; `ways`: how many first octets there are, from 64 on."""
        super().__init__(
            [proxy_addresses.address(address, p) for p in range(ways)],
            rules(address),
            routes,
            ports,
        )
        self._steered = Elements(self._tables, partial(nft.element, TABLE, STEERED))

    def set(self, changes: Iterable[SetSourceRewrite]) -> None:
        self._steered.want({change.destination: change.rewritten for change in changes})
        self._steered.make()

    def used(self) -> Iterator[DaemonEvent]:
        return map(DestinationInUse, self.in_use())

    def in_use(self) -> Iterator[int]:
        for packet in self._shown():
            yield struct.unpack_from(">I", packet, IP_DESTINATION)[0]


REFUSALS = (0, 1)  # network, host unreachable


def listen(group: int) -> socket.socket:
    """A socket that hears, without delay, what rules show to `group`."""
    listener = socket.socket(
        socket.AF_NETLINK,
        socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK,
        nft.NETLINK_NETFILTER,
    )
    listener.setsockopt(socket.SOL_SOCKET, netlink.SO_RCVBUFFORCE, 1 << 20)
    listener.bind((0, 0))
    configuration: Sequence[tuple[int, bytes]] = (
        (NFULA_CFG_CMD, struct.pack("=B", BIND)),
        (NFULA_CFG_MODE, struct.pack(">IBx", MOST_SHOWN_BYTES, COPY_PACKET)),
        (NFULA_CFG_QTHRESH, struct.pack(">I", 1)),
    )
    for kind, value in configuration:
        body = nft.GENMSG.pack(nft.NFPROTO_IPV4, 0, group) + netlink.attribute(kind, value)
        header = (
            16 + len(body),
            NFLOG << 8 | NFULNL_MSG_CONFIG,
            netlink.NLM_F_REQUEST | netlink.NLM_F_ACK,
            1,
            0,
        )
        listener.send(netlink.HEADER.pack(*header) + body)
        listener.setblocking(True)
        answer = listener.recv(4096)
        listener.setblocking(False)
        code = -struct.unpack_from("=i", answer, 16)[0]
        if code:
            raise netlink.NetlinkError(
                code, f"nfnetlink_log group {group}: {netlink.words(code, 0, answer[16:])}"
            )
    return listener
