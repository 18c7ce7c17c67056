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
# room for some 2,500 small packets, more than any queue has
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
    """An echo reply, or an error about a packet that was sent.

    by: source address of the reply.
    protocol: of the sent packet, ICMP or UDP.
    key: of an echo request, identifier << 16 | sequence number; of a UDP packet, source port << 16
        | IP identification.
    token: the first four bytes of its data, 0 if the reply is shorter.
    """

    kind: int
    code: int
    by: int
    protocol: int
    key: int
    token: int


def checksum(data: bytes) -> int:
    """Return the Internet checksum of an even number of bytes (RFC 1071)."""
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Echo:
    """Echo requests that differ only in their sequence number.

    Their data has `size_bytes`, an even number from 4, and begins with `token`, which identifies
    the sender.
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
    """Return the reply in an IPv4 packet from a raw socket, None for any other packet."""
    if len(packet) < 28:
        return None
    start = _header_bytes(packet, 0)
    if len(packet) < start + 8:
        return None
    kind, code, _, identifier, sequence = HEADER.unpack_from(packet, start)
    source = _word(packet, 12)
    if kind == ECHO_REPLY:
        key = identifier << 16 | sequence
        token = _word(packet, start + 8)
        return IcmpReply(kind, code, source, socket.IPPROTO_ICMP, key, token)
    quoted = start + 8
    if kind not in (UNREACHABLE, TIME_EXCEEDED) or len(packet) < quoted + 20:
        return None
    inner = quoted + _header_bytes(packet, quoted)
    if len(packet) < inner + 8:
        return None
    protocol = packet[quoted + 9]
    if protocol == socket.IPPROTO_ICMP:
        key = _word(packet, inner + 4)
    elif protocol == socket.IPPROTO_UDP:
        key = int.from_bytes(packet[inner : inner + 2] + packet[quoted + 4 : quoted + 6], "big")
    else:
        return None
    return IcmpReply(kind, code, source, protocol, key, _word(packet, inner + 8))


def _header_bytes(packet: bytes, start: int) -> int:
    return (packet[start] & 15) * 4


def _word(packet: bytes, start: int) -> int:
    return int.from_bytes(packet[start : start + 4], "big")


def words(answer: IcmpReply) -> str:
    """Return the meaning of an error."""
    if answer.kind == TIME_EXCEEDED:
        return "time to live exceeded"
    return UNREACHABLE_WORDS.get(answer.code, f"unreachable, code {answer.code}")


def sender(protocol: int) -> socket.socket:
    """Return a non-blocking raw socket in the thread's namespace that only sends."""
    raw = socket.socket(
        socket.AF_INET, socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, protocol
    )
    if protocol == socket.IPPROTO_ICMP:
        raw.setsockopt(SOL_RAW, ICMP_FILTER, struct.pack("=I", 0xFFFFFFFF))
    raw.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER_BYTES)
    return raw


def receiver(*kinds: int) -> socket.socket:
    """Return a non-blocking raw socket in the thread's namespace for `kinds`, with timestamps."""
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
    """Return a packet and the kernel's time of its arrival in ns (CLOCK_REALTIME), None without."""
    try:
        packet, ancillary, _, _ = from_.recvmsg(2048, ROOM)
    except BlockingIOError:
        return None
    seconds, ns = TIMESPEC.unpack(ancillary[0][2])
    return packet, seconds * 1_000_000_000 + ns
