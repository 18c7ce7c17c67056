"""A protocol's packets on the wire: UDP to two link-local multicast groups, TTL 255, one device for
each port.

What is urgent goes to one group and wakes the daemon that hears it.  What is routine goes to the
other, and lies in the socket until the daemon wakes anyway; the kernel noted when it came.  With
156 daemons on two cores a wake-up costs 35 us and reading a packet 1 us.

Sending costs 4.1 us through all of UDP, veth and the far socket, 2.2 us from a packet socket;
between many nodes, where memory is what costs, the two differ by less than 5 %.  So UDP it is:
tcpdump knows it, and TTL 255 has a meaning.  A connected socket keeps its route, which saves a
quarter of all that packed daemons cost.  It also hears of errors: an ICMP message, which anybody
may send, makes the next send fail, and is then forgotten; so what fails is sent again.
"""

from __future__ import annotations

import errno
import fcntl
import socket
import struct
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from weft.daemons.core import wire
from weft.testbed.linux import tc
from weft.testbed.node_daemon.sealed_channel import COOKIE_BYTES, TAG_BYTES, PortChannel

ROUTINE, URGENT = ("224.0.0.233", tc.CONTROL_PORT), ("224.0.0.234", tc.CONTROL_PORT)
FRAME_BYTES = 2048  # room for one frame's payload
SO_RCVBUFFORCE, IP_MULTICAST_ALL = 33, 49
IP_MTU_DISCOVER, IP_PMTUDISC_INTERFACE = 10, 4
# of kernel memory: some 700 hellos, should a flood come between two times that it is read
RECEIVE_BYTES = 1 << 19
TRIES = 8  # of sending
ICMP_MAKES = {  # errors that an ICMP message may leave at a socket: icmp_err_convert of Linux
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
SIOCGSTAMPNS = 0x80108907  # when the packet came that was read last, a
TIMESPEC = struct.Struct("=qq")  # of seconds since 1970 and nanoseconds
UDP_BYTES = 8


def only_for(node: int, cookies: Sequence[bytes]) -> tuple[tuple[int, int, int, int], ...]:
    """The classic BPF program that lets through what a neighbour sent, and of what is for one
    neighbour alone only what is for `node`: at a crossbar everybody hears it, and need not wake for
    that.  If there are `cookies`, the message must carry one of them (sealed_channel.py).

    GTSM, RFC 5082: every router takes one from the TTL, so what arrives with 255 was sent by a
    neighbour.
    """
    known = [int.from_bytes(cookie, "big") for cookie in cookies]
    rest = len(known)  # instructions from the first comparison on to what accepts
    cookie = [
        (0x80, 0, 0, 0),  # ld: length
        (0x14, 0, 0, TAG_BYTES + COOKIE_BYTES),  # sub
        (0x07, 0, 0, 0),  # tax
        (0x40, 0, 0, 0),  # ld [x]: the cookie
        # jeq, after the last drop
        *((0x15, rest - 1 - i, int(i == rest - 1), one) for i, one in enumerate(known)),
    ]
    checked = cookie if known else []
    return (
        (0x30, 0, 0, 0xFFF00008),  # ldb [SKF_NET_OFF + 8]: the IP header's TTL
        (0x15, 0, 5 + len(checked), 255),  # jeq 255, else drop
        (0x30, 0, 0, UDP_BYTES + 2),  # ldb: the message's type
        (0x35, 0, 2, wire.FIRST_TARGETED),  # jge, else it is for everybody
        (0x20, 0, 0, UDP_BYTES + wire.TARGET.start),  # ld: its target
        (0x15, 0, 1 + len(checked), node),  # jeq, else drop
        *checked,
        (0x06, 0, 0, 0xFFFFFFFF),  # ret: all of it
        (0x06, 0, 0, 0),  # ret: drop
    )


def _send_socket(dev: str, index: int, group: str) -> socket.socket:
    """A socket that sends to `group` through `dev`, whatever that is called later."""
    made = socket.socket(
        socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    )
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, dev.encode())
        made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, _here(index, group))
        made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 255)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
        # whatever ICMP says of it
        made.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_INTERFACE)
        # ahead of the port's queue
        made.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, tc.CONTROL_PRIORITY)
    except BaseException:
        made.close()
        raise
    return made


def _receive_socket(
    dev: str, index: int, node: int, cookies: Sequence[bytes], group: str
) -> socket.socket:
    """A socket of `node` that hears `group` through `dev`, whatever that is called later."""
    made = socket.socket(
        socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    )
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, dev.encode())
        tc.of_socket(made, only_for(node, cookies))
        # without CAP_NET_ADMIN there is as much room as for anybody
        with suppress(PermissionError):
            made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, _here(index, group))
        # nothing that other sockets of the node joined
        made.setsockopt(socket.IPPROTO_IP, IP_MULTICAST_ALL, 0)
        made.bind((group, tc.CONTROL_PORT))
        # nothing has come yet; but from now on the kernel notes when something does
        with suppress(FileNotFoundError):
            fcntl.ioctl(made, SIOCGSTAMPNS, bytearray(TIMESPEC.size))
    except BaseException:
        made.close()
        raise
    return made


def _here(index: int, group: str) -> bytes:
    """`group` at an interface, by index: the address of an unnumbered one is another's, so it does
    not say which."""
    return struct.pack("=4s4xi", socket.inet_aton(group), index)


class PortSockets:
    """One port of a node on the wire: a socket that hears what is urgent, one for what is routine,
    and one for saying either.

    channel: by which what it says and hears is sealed and opened; who reads the sockets opens.
    """

    __slots__ = ("_node", "_says_routine", "_says_urgent", "channel", "routine", "urgent")

    def __init__(self, dev: str, node: int, channel: PortChannel) -> None:
        """Open it in the namespace of the calling thread; OSError if `dev` is not there."""
        self.channel = channel
        self._node = node
        index = socket.if_nametoindex(dev)
        with ExitStack() as opened:
            self.urgent = opened.enter_context(
                _receive_socket(dev, index, node, channel.cookies, URGENT[0])
            )
            self.routine = opened.enter_context(
                _receive_socket(dev, index, node, channel.cookies, ROUTINE[0])
            )
            self._says_urgent = opened.enter_context(_send_socket(dev, index, URGENT[0]))
            self._says_routine = opened.enter_context(_send_socket(dev, index, ROUTINE[0]))
            opened.pop_all()

    def sockets(self) -> list[socket.socket]:
        """All that it has open."""
        return [self.urgent, self.routine, self._says_urgent, self._says_routine]

    def say(self, payload: bytes, routine: bool) -> None:
        """Say it to ROUTINE or URGENT, to everybody at the far end of the link; OSError if it
        cannot leave."""
        sender, frame = (
            self._says_routine if routine else self._says_urgent,
            self.channel.seal(payload),
        )
        try:
            sender.send(frame)
        except OSError:
            self._insist(sender, frame, ROUTINE if routine else URGENT)

    def _insist(self, sender: socket.socket, frame: bytes, group: tuple[str, int]) -> None:
        """Send what could not be sent at once."""
        for left in reversed(range(TRIES)):
            try:
                sender.send(frame)
            except OSError as error:
                if error.errno == errno.EDESTADDRREQ:
                    # not before, because a port that is down has no way there
                    sender.connect(group)
                elif error.errno not in ICMP_MAKES or not left:
                    raise
            else:
                return

    def set_keys(self, keys: Sequence[bytes]) -> None:
        """Speak and hear by these keys from now on."""
        self.channel.set_keys(keys)
        for ear in (self.urgent, self.routine):
            tc.of_socket(ear, only_for(self._node, self.channel.cookies))

    def close(self) -> None:
        for one in self.sockets():
            one.close()
