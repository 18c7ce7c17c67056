"""Sockets of a daemon: news of its links, and UDP packets port by port.

Packets go to two link-local multicast groups with TTL 255.

Urgent packets go to one group and wake the daemon.  Routine packets go to the other, and wait in
the socket until the daemon wakes; the kernel records their time of arrival.  A wake-up costs 35
times as much as reading a packet.

UDP costs hardly more than packet sockets, tcpdump decodes it, and TTL 255 has a meaning.  A
connected socket keeps its route, which saves a quarter of the cost of packed daemons.  An ICMP
error, which any host may forge, makes its next send fail once; so a failed send is repeated.
"""

from __future__ import annotations

import errno
import fcntl
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple

from weft.daemons.core import wire
from weft.testbed.linux import netlink, tc, tc_filters
from weft.testbed.linux.interface import IFF_UP, IFINFO, NodeInterfaces
from weft.testbed.node_daemon.sealed_channel import COOKIE_BYTES, TAG_BYTES, PortChannel

LINK_GROUP = 1
ALL_LINKS = IFINFO.pack(0, 0, 0, 0, 0)
IFF_LOWER_UP = 0x10000
ROUTINE, URGENT = ("224.0.0.233", tc_filters.CONTROL_PORT), ("224.0.0.234", tc_filters.CONTROL_PORT)
FRAME_BYTES = 2048  # room for one frame's payload
SO_RCVBUFFORCE, IP_MULTICAST_ALL = 33, 49
IP_MTU_DISCOVER, IP_PMTUDISC_INTERFACE = 10, 4
# of kernel memory: some 700 hellos, for a flood between two reads
RECEIVE_BYTES = 1 << 19
TRIES = 8  # to send a packet
ICMP_ERRORS = {  # that an ICMP message may leave at a socket: icmp_err_convert of Linux
    errno.ENETUNREACH,
    errno.EHOSTUNREACH,
    errno.ECONNREFUSED,
    errno.ENOPROTOOPT,
    errno.EOPNOTSUPP,
    errno.EMSGSIZE,
    errno.EHOSTDOWN,
    errno.ENONET,
    errno.EPROTO,
}
SIOCGSTAMPNS = 0x80108907  # arrival of the packet that was read last, as a TIMESPEC
TIMESPEC = struct.Struct("=qq")  # seconds since 1970, nanoseconds
UDP_BYTES = 8


class LinkChanged(NamedTuple):
    """The new state of the device at `port`.

    is_set_up: its administrative state.
    up: it is set up and has a carrier.
    """

    port: int
    is_set_up: bool
    up: bool


class LinkNews:
    """Reports changes of the ports of `interfaces`.

    socket: readable when a change waits.
    lost: changes were lost, and all ports were read back instead; the caller resets it.
    """

    def __init__(self, interfaces: NodeInterfaces, requests: netlink.Socket) -> None:
        """Subscribe in the namespace of the calling thread; `requests` is a socket there."""
        self._port_of = {interface.ifindex: port for port, interface in interfaces.ports.items()}
        self._requests = requests
        self._events = netlink.Socket(groups=LINK_GROUP)
        self.socket = self._events.socket
        self.lost = False

    def close(self) -> None:
        self._events.close()

    def now(self) -> list[LinkChanged]:
        """Return the state of all ports."""
        dump = self._requests.dump(netlink.RTM_GETLINK, ALL_LINKS)
        changes = (self._change(netlink.RTM_NEWLINK, body) for body in dump)
        return [change for change in changes if change]

    def read(self) -> Iterator[LinkChanged]:
        """Yield the changes that wait."""
        try:
            data = self._events.receive(socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            self.lost = True
            yield from self.now()
        else:
            for kind, _, _, body in netlink.split(data):
                if kind in (netlink.RTM_NEWLINK, netlink.RTM_DELLINK):
                    change = self._change(kind, body)
                    if change:
                        yield change

    def _change(self, kind: int, body: bytes) -> LinkChanged | None:
        _, _, ifindex, flags, _ = IFINFO.unpack_from(body)
        port = self._port_of.get(ifindex)
        if port is None:
            return None
        is_set_up = kind == netlink.RTM_NEWLINK and bool(flags & IFF_UP)
        return LinkChanged(port, is_set_up, is_set_up and bool(flags & IFF_LOWER_UP))


def only_for(node: int, cookies: Sequence[bytes]) -> tuple[tuple[int, int, int, int], ...]:
    """Return the classic BPF program of a receiving socket of `node`.

    It passes packets that a neighbour sent to all, or to `node`: at a crossbar, packets for other
    nodes arrive, too.  If there are `cookies`, the message must carry one of them.

    GTSM, RFC 5082: every router decrements the TTL, so a TTL of 255 proves a neighbour.
    """
    known = [int.from_bytes(cookie, "big") for cookie in cookies]
    rest = len(known)  # instructions from the first comparison on to what accepts
    cookie = [
        (0x80, 0, 0, 0),  # ld: length
        (0x14, 0, 0, TAG_BYTES + COOKIE_BYTES),  # sub
        (0x07, 0, 0, 0),  # tax
        (0x40, 0, 0, 0),  # ld [x]: the cookie
        # jeq, after the last drop
        *((0x15, rest - 1 - i, int(i == rest - 1), value) for i, value in enumerate(known)),
    ]
    checked = cookie if known else []
    return (
        (0x30, 0, 0, 0xFFF00008),  # ldb [SKF_NET_OFF + 8]: the IP header's TTL
        (0x15, 0, 5 + len(checked), 255),  # jeq 255, else drop
        (0x30, 0, 0, UDP_BYTES + 2),  # ldb: the message's type
        (0x35, 0, 2, wire.FIRST_TARGETED),  # jge, else it is for all
        (0x20, 0, 0, UDP_BYTES + wire.TARGET.start),  # ld: its target
        (0x15, 0, 1 + len(checked), node),  # jeq, else drop
        *checked,
        (0x06, 0, 0, 0xFFFFFFFF),  # ret: all of it
        (0x06, 0, 0, 0),  # ret: drop
    )


def _udp_socket(dev: str) -> socket.socket:
    """Return a socket of the device `dev`."""
    kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    udp = socket.socket(socket.AF_INET, kind)
    udp.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, dev.encode())
    return udp


def _set_up_sender(udp: socket.socket, index: int, group: str) -> None:
    """Have the socket send to `group`."""
    for option, value in (
        (socket.IP_MULTICAST_IF, _here(index, group)),
        (socket.IP_MULTICAST_TTL, 255),
        (socket.IP_MULTICAST_LOOP, 0),
        # ignore path MTUs that ICMP messages claim
        (IP_MTU_DISCOVER, IP_PMTUDISC_INTERFACE),
    ):
        udp.setsockopt(socket.IPPROTO_IP, option, value)
    _go_ahead(udp, ahead=True)


def _go_ahead(udp: socket.socket, *, ahead: bool) -> None:
    """Have the socket's packets go ahead of the port's queue, or wait in it."""
    priority = tc.CONTROL_PRIORITY if ahead else tc.QUEUED_PRIORITY
    udp.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, priority)


def _set_up_receiver(
    udp: socket.socket, index: int, group: str, program: Sequence[tuple[int, int, int, int]]
) -> None:
    """Have the socket receive what `program` passes of the packets to `group`."""
    tc_filters.filter_socket(udp, program)
    # without CAP_NET_ADMIN the default room must do
    with suppress(PermissionError):
        udp.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES)
    udp.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, _here(index, group))
    # no groups that other sockets of the node joined
    udp.setsockopt(socket.IPPROTO_IP, IP_MULTICAST_ALL, 0)
    udp.bind((group, tc_filters.CONTROL_PORT))
    # from this call on the kernel records times of arrival; there is none yet
    with suppress(FileNotFoundError):
        fcntl.ioctl(udp, SIOCGSTAMPNS, bytearray(TIMESPEC.size))


def _here(index: int, group: str) -> bytes:
    """Return `group` at an interface, by index, because interfaces of a node share one address."""
    return struct.pack("=4s4xi", socket.inet_aton(group), index)


class PortSockets:
    """The sockets of one port: to receive and to send urgent and routine packets.

    channel: seals the packets that say() sends; the reader of the sockets opens received ones.
    """

    __slots__ = ("_node", "_says_routine", "_says_urgent", "channel", "routine", "urgent")

    def __init__(self, dev: str, node: int, channel: PortChannel) -> None:
        """Open the sockets in the namespace of the calling thread.

        Raises:
            OSError: there is no device `dev`.
        """
        self.channel = channel
        self._node = node
        index = socket.if_nametoindex(dev)
        program = only_for(node, channel.cookies)
        with ExitStack() as opened:
            sockets = [opened.enter_context(_udp_socket(dev)) for _ in range(4)]
            self.urgent, self.routine, self._says_urgent, self._says_routine = sockets
            for receiver, sender, (group, _) in (
                (self.urgent, self._says_urgent, URGENT),
                (self.routine, self._says_routine, ROUTINE),
            ):
                _set_up_receiver(receiver, index, group, program)
                _set_up_sender(sender, index, group)
            opened.pop_all()

    def sockets(self) -> list[socket.socket]:
        return [self.urgent, self.routine, self._says_urgent, self._says_routine]

    def say(self, payload: bytes, routine: bool, *, queued: bool = False) -> None:
        """Seal `payload` and send it to the ROUTINE or URGENT group.

        A `queued` packet waits behind the packets in the port's queue.

        Raises:
            OSError: it cannot be sent.
        """
        sender = self._says_routine if routine else self._says_urgent
        if not queued:
            self._send(sender, payload, routine)
            return
        _go_ahead(sender, ahead=False)
        try:
            self._send(sender, payload, routine)
        finally:
            _go_ahead(sender, ahead=True)

    def _send(self, sender: socket.socket, payload: bytes, routine: bool) -> None:
        frame = self.channel.seal(payload)
        try:
            sender.send(frame)
        except OSError:
            self._insist(sender, frame, ROUTINE if routine else URGENT)

    def _insist(self, sender: socket.socket, frame: bytes, group: tuple[str, int]) -> None:
        """Repeat a failed send."""
        for tries_left in reversed(range(TRIES)):
            try:
                sender.send(frame)
            except OSError as error:
                if error.errno == errno.EDESTADDRREQ:
                    # not earlier, because a port that is down has no route
                    sender.connect(group)
                elif error.errno not in ICMP_ERRORS or not tries_left:
                    raise
            else:
                return

    def set_keys(self, keys: Sequence[bytes]) -> None:
        """Use these keys from now on."""
        self.channel.set_keys(keys)
        for ear in (self.urgent, self.routine):
            tc_filters.filter_socket(ear, only_for(self._node, self.channel.cookies))

    def close(self) -> None:
        for open_socket in self.sockets():
            open_socket.close()
