"""ICMP as bytes, and raw sockets for it within namespaces.

Imports little: prober.py is a process of its own.
"""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

ECHO_REPLY, UNREACHABLE, ECHO, TIME_EXCEEDED = 0, 3, 8, 11
PORT_UNREACHABLE = 3
SOL_RAW, ICMP_FILTER = 255, 1
SO_TIMESTAMPNS = 35
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
# small packets that may wait in a socket: some 2,500, and more than fit into any queue
BUFFER_BYTES = 1 << 21
HEADER = struct.Struct(">BBHHH")  # type, code, checksum, identifier, sequence number
TIMESPEC = struct.Struct("=qq")
ROOM = socket.CMSG_SPACE(TIMESPEC.size)
UNREACHABLE_WORDS = {
    0: "network unreachable",
    1: "host unreachable",
    2: "protocol unreachable",
    3: "port unreachable",
    4: "packet too big",
    5: "source route failed",
    9: "network prohibited",
    10: "host prohibited",
    13: "communication prohibited",
}


class IcmpReply(NamedTuple):
    """What came back: an echo reply, or an error about a packet of ours.

    by: address of who answers.  protocol: of the packet that it is about, ICMP or UDP.
    key: of an echo request, identifier << 16 | sequence number; of a UDP packet, source port << 16
        | IP identification.
    token: the first four bytes of its data, 0 if the answer does not go so far.
    """

    kind: int
    code: int
    by: int
    protocol: int
    key: int
    token: int


def checksum(data: bytes) -> int:
    """The Internet checksum of an even number of bytes (RFC 1071)."""
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Echo:
    """Echo requests that differ in nothing but their sequence number.

    Their data, `size_bytes` of it, an even number from 4, begins with `token`, by which one knows
    one's own.
    """

    def __init__(self, identifier: int, token: int, size_bytes: int) -> None:
        self._data = token.to_bytes(4, "big") + bytes(i & 0xFF for i in range(4, size_bytes))
        self._identifier = identifier
        self._sum = ~checksum(HEADER.pack(ECHO, 0, 0, identifier, 0) + self._data) & 0xFFFF

    def request(self, sequence: int) -> bytes:
        total = self._sum + sequence
        check = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
        return HEADER.pack(ECHO, 0, check, self._identifier, sequence) + self._data


def parse(packet: bytes) -> IcmpReply | None:
    """The answer in an IPv4 packet as a raw socket gives it; None for anything else."""
    if len(packet) < 28:
        return None
    start = (packet[0] & 15) * 4
    if len(packet) < start + 8:
        return None
    by = int.from_bytes(packet[12:16], "big")
    kind, code, _, identifier, sequence = HEADER.unpack_from(packet, start)
    if kind == ECHO_REPLY:
        token = int.from_bytes(packet[start + 8 : start + 12], "big")
        return IcmpReply(kind, code, by, socket.IPPROTO_ICMP, identifier << 16 | sequence, token)
    if kind not in (UNREACHABLE, TIME_EXCEEDED):
        return None
    quoted = start + 8
    if len(packet) < quoted + 20:
        return None
    inner = quoted + (packet[quoted] & 15) * 4
    if len(packet) < inner + 8:
        return None
    protocol = packet[quoted + 9]
    token = int.from_bytes(packet[inner + 8 : inner + 12], "big")
    if protocol == socket.IPPROTO_ICMP:
        return IcmpReply(
            kind, code, by, protocol, int.from_bytes(packet[inner + 4 : inner + 8], "big"), token
        )
    if protocol == socket.IPPROTO_UDP:
        port, identification = packet[inner : inner + 2], packet[quoted + 4 : quoted + 6]
        return IcmpReply(
            kind, code, by, protocol, int.from_bytes(port + identification, "big"), token
        )
    return None


def words(answer: IcmpReply) -> str:
    """What an error says."""
    if answer.kind == TIME_EXCEEDED:
        return "time to live exceeded"
    return UNREACHABLE_WORDS.get(answer.code, f"unreachable, code {answer.code}")


def sender(protocol: int) -> socket.socket:
    """A raw socket in the thread's namespace to send from, non-blocking; it hears nothing."""
    raw = socket.socket(
        socket.AF_INET, socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, protocol
    )
    if protocol == socket.IPPROTO_ICMP:
        raw.setsockopt(SOL_RAW, ICMP_FILTER, struct.pack("=I", 0xFFFFFFFF))
    raw.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER_BYTES)
    return raw


def receiver(*kinds: int) -> socket.socket:
    """A raw socket in the thread's namespace that hears `kinds` of ICMP, non-blocking, with the
    time of arrival."""
    raw = socket.socket(
        socket.AF_INET,
        socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK,
        socket.IPPROTO_ICMP,
    )
    raw.setsockopt(
        SOL_RAW, ICMP_FILTER, struct.pack("=I", 0xFFFFFFFF & ~sum(1 << kind for kind in kinds))
    )
    raw.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    raw.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    return raw


def receive(from_: socket.socket) -> tuple[bytes, int] | None:
    """A packet and when it arrived, in ns of CLOCK_REALTIME as the kernel stamped it; None if there
    is none waiting."""
    try:
        packet, ancillary, _, _ = from_.recvmsg(2048, ROOM)
    except BlockingIOError:
        return None
    seconds, ns = TIMESPEC.unpack(ancillary[0][2])
    return packet, seconds * 1_000_000_000 + ns
