"""Netlink, batched: many messages in one send, and errors in the kernel's own words.

A NetlinkMessage has the bytes of a change and the equivalent `ip` or `tc` command, which a dry run
prints and an error quotes.  With 100 changes in a send, each takes 0.02 ms.
"""

from __future__ import annotations

import errno
import mmap
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP = 0x1, 0x4, 0x300
NLM_F_REPLACE, NLM_F_EXCL, NLM_F_CREATE, NLM_F_APPEND = 0x100, 0x200, 0x400, 0x800
NLM_F_CAPPED, NLM_F_ACK_TLVS = 0x100, 0x200
CREATE = NLM_F_CREATE | NLM_F_EXCL
REPLACE = NLM_F_CREATE | NLM_F_REPLACE
NLMSGERR_ATTR_MSG = 1
SOL_NETLINK, NETLINK_CAP_ACK, NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK = 270, 10, 11, 12
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK = 16, 17, 18
RTM_NEWADDR = 20
RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 24, 25, 26
RTM_NEWNEIGH = 28
RTM_NEWQDISC, RTM_DELQDISC, RTM_GETQDISC = 36, 37, 38
RTM_NEWTCLASS, RTM_GETTCLASS = 40, 42
RTM_NEWTFILTER, RTM_DELTFILTER, RTM_GETTFILTER = 44, 45, 46
RTM_GETSTATS, IFLA_STATS_LINK_64 = 94, 1

BATCH_BYTES = 96 * 1024  # of one send, which returns when the kernel has made the changes
RECEIVE_BYTES = 1 << 18  # size of a buffer for one receive
HEADER = struct.Struct("=IHHII")
ATTRIBUTE = struct.Struct("=HH")
NETWORK_U32 = struct.Struct("=HH4s")
IF_STATS = struct.Struct("=BxxxII")
LINK_64 = struct.Struct("=8Q")  # packets, bytes, errors, drops, each received and sent


class NetlinkError(OSError):
    """Refusal of a change by the kernel, with the equivalent command and the kernel's message."""


class NetlinkMessage(NamedTuple):
    """One change: message type, flags beside REQUEST, body, and the equivalent command."""

    kind: int
    flags: int
    body: bytes
    command: str


def attribute(kind: int, payload: bytes) -> bytes:
    """Return an attribute of type `kind`, padded to four bytes."""
    size = 4 + len(payload)
    return ATTRIBUTE.pack(size, kind) + payload + bytes(-size % 4)


def nested(kind: int, *attributes: bytes) -> bytes:
    """Return an attribute that holds attributes."""
    return attribute(kind, b"".join(attributes))


def u32(kind: int, value: int) -> bytes:
    """Return an attribute with a 32-bit number."""
    return struct.pack("=HHI", 8, kind, value)


def network_u32(kind: int, value: int) -> bytes:
    """Return an attribute with a 32-bit number in network order, such as an IPv4 address."""
    return NETWORK_U32.pack(8, kind, value.to_bytes(4, "big"))


def address(kind: int, value: str) -> bytes:
    """Return an attribute with an address of IPv4 or IPv6."""
    family = socket.AF_INET6 if ":" in value else socket.AF_INET
    return attribute(kind, socket.inet_pton(family, value))


def text(kind: int, value: str) -> bytes:
    """Return an attribute with a zero-terminated string."""
    return attribute(kind, value.encode() + b"\0")


def attributes(data: bytes, offset: int = 0) -> dict[int, bytes]:
    """Return the attributes in `data` from `offset`, by type without flags; the last one wins."""
    values = {}
    last, unpack = len(data) - 4, ATTRIBUTE.unpack_from
    while offset <= last:
        size, kind = unpack(data, offset)
        if size < 4:
            break
        values[kind & 0x3FFF] = data[offset + 4 : offset + size]
        offset += (size + 3) & ~3
    return values


# unused buffers; recv() would map and unmap as much memory for each message
_free_buffers: list[memoryview] = []


class Socket:
    """A netlink socket in the namespace of the thread that made it; usable from any."""

    def __init__(self, groups: int = 0, family: int = socket.NETLINK_ROUTE) -> None:
        self.socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family
        )
        self.socket.setsockopt(SOL_NETLINK, NETLINK_EXT_ACK, 1)
        self.socket.setsockopt(SOL_NETLINK, NETLINK_CAP_ACK, 1)
        self.socket.setsockopt(SOL_NETLINK, NETLINK_GET_STRICT_CHK, 1)
        force = os.geteuid() == 0
        self.socket.setsockopt(
            socket.SOL_SOCKET, SO_SNDBUFFORCE if force else socket.SO_SNDBUF, 4 * BATCH_BYTES
        )
        self.socket.setsockopt(
            socket.SOL_SOCKET, SO_RCVBUFFORCE if force else socket.SO_RCVBUF, 1 << 20
        )
        self.socket.bind((0, groups))
        self.sequence = 0

    def fileno(self) -> int:
        return self.socket.fileno()

    def close(self) -> None:
        self.socket.close()

    def receive(self, flags: int = 0) -> bytes:
        """Return the kernel's next messages; `flags` and errors are those of recv()."""
        try:
            buffer = _free_buffers.pop()
        except IndexError:  # pages of it that are not written to take no memory
            buffer = memoryview(mmap.mmap(-1, RECEIVE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        try:
            return bytes(buffer[: self.socket.recv_into(buffer, 0, flags)])
        finally:
            _free_buffers.append(buffer)

    def request(
        self, messages: Iterable[NetlinkMessage], *, tolerate: frozenset[int] = frozenset()
    ) -> None:
        """Make all changes, in order.

        Args:
            messages: the changes.
            tolerate: errors that mean that the requested state exists already.

        Raises:
            NetlinkError: for the first refused change; the others were made.
        """
        batch: list[NetlinkMessage] = []
        size = 0
        for message in messages:
            batch.append(message)
            size += 16 + len(message.body)
            if size >= BATCH_BYTES:
                self.send(batch, tolerate)
                batch, size = [], 0
        if batch:
            self.send(batch, tolerate)

    def send(
        self,
        batch: list[NetlinkMessage],
        tolerate: frozenset[int] = frozenset(),
        begin: bytes = b"",
        end: bytes = b"",
    ) -> None:
        """Make the changes of `batch`, which has one at least, in one send.

        Args:
            batch: the changes.
            tolerate: see request().
            begin: packed message before them, numbered `sequence`; an error refuses them all.
            end: packed message behind them, numbered 0.

        Raises:
            NetlinkError: for the first refused change.
        """
        # the kernel works in order and reports every error, so only the last message needs an
        # acknowledgement
        first = self.sequence + 1
        self.sequence += len(batch)
        last = self.sequence
        packed = bytearray(begin)
        for sequence, (kind, flags, body, _) in enumerate(batch, first):
            flags |= NLM_F_REQUEST | (NLM_F_ACK if sequence == last else 0)
            packed += HEADER.pack(16 + len(body), kind, flags, sequence, 0) + body
        self.socket.send(packed + end)
        failed: NetlinkError | None = None
        for kind, flags, sequence, body in self._receive_until(last):
            code = -struct.unpack_from("=i", body)[0] if kind == NLMSG_ERROR else 0
            if code and code not in tolerate:
                command = batch[max(0, sequence - first)].command
                failed = failed or NetlinkError(code, f"{command}: {words(code, flags, body)}")
                if sequence < first:
                    break
        if failed:
            raise failed

    def _receive_until(self, last: int) -> Iterator[tuple[int, int, int, bytes]]:
        """Return (type, flags, sequence, body) of replies up to the last one to number `last`."""
        while True:
            for kind, flags, sequence, body in split(self.receive()):
                if sequence > last or sequence == 0:
                    continue  # a notification
                yield kind, flags, sequence, body
                if sequence == last and kind in (NLMSG_ERROR, NLMSG_DONE):
                    return

    def dump(self, kind: int, body: bytes) -> list[bytes]:
        """Return the bodies of all replies to the RTM_GET... request `kind`."""
        return self._replies(kind, NLM_F_DUMP, body, f"netlink dump {kind}")

    def _replies(self, kind: int, flags: int, body: bytes, command: str) -> list[bytes]:
        self.sequence += 1
        header = HEADER.pack(16 + len(body), kind, NLM_F_REQUEST | flags, self.sequence, 0)
        self.socket.send(header + body)
        replies = []
        for kind_of_reply, reply_flags, _, reply in self._receive_until(self.sequence):
            if kind_of_reply == NLMSG_ERROR and (code := -struct.unpack_from("=i", reply)[0]):
                raise NetlinkError(code, f"{command}: {words(code, reply_flags, reply)}")
            if kind_of_reply not in (NLMSG_ERROR, NLMSG_DONE):
                replies.append(reply)
        return replies

    def link_counters(self) -> dict[int, tuple[int, ...]]:
        """Return LINK_64 of every link in the namespace at one instant, by interface index."""
        counters = {}
        for body in self.dump(RTM_GETSTATS, IF_STATS.pack(0, 0, 1 << (IFLA_STATS_LINK_64 - 1))):
            _, index, _ = IF_STATS.unpack_from(body)
            counters[index] = LINK_64.unpack_from(body, IF_STATS.size + ATTRIBUTE.size)
        return counters

    def get(self, kind: int, body: bytes, command: str) -> bytes:
        """Return the body of the only reply to a RTM_GET... request.

        Raises:
            NetlinkError: with `command`, if the kernel refused.
        """
        (reply,) = self._replies(kind, NLM_F_ACK, body, command)
        return reply


def split(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Return (type, flags, sequence, body) of each message of one receive."""
    offset = 0
    while offset + 16 <= len(data):
        size, kind, flags, sequence, _ = HEADER.unpack_from(data, offset)
        if size < 16:
            raise NetlinkError(errno.EBADMSG, f"netlink message of {size} bytes")
        yield kind, flags, sequence, data[offset + 16 : offset + size]
        offset += (size + 3) & ~3


def words(code: int, flags: int, body: bytes) -> str:
    """Return the message in an error's extended acknowledgement, else the name of the error."""
    if flags & NLM_F_ACK_TLVS:
        # struct nlmsgerr: the error and the header of the request, followed by the request's body
        # unless it was capped.
        size = struct.unpack_from("=I", body, 4)[0]
        message = attributes(body, 4 + (16 if flags & NLM_F_CAPPED else (size + 3) & ~3)).get(
            NLMSGERR_ATTR_MSG
        )
        if message:
            return f"{message.rstrip(bytes(1)).decode(errors='replace')} ({os.strerror(code)})"
    return os.strerror(code)
