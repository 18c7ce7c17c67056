"""struct tcp_info of a sender's socket, or of all subflows of a multipath connection."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

from weft.testbed.traffic import mptcp

BYTES_RECEIVED = 128  # where struct tcp_info has it, from Linux 4.1 on


class TcpInfo(NamedTuple):
    """Fields of struct tcp_info at the end of a flow.

    spurious: retransmissions of segments that had arrived (DSACK).
    reordered: observed reordering events.
    marked: segments delivered with a congestion mark.
    timeouts, timeout_ms: expiries of the retransmission timer, and total time of recovery from
        them; 0 before Linux 6.7.

    For multipath TCP: sums over the subflows at the end; round-trip times of the first subflow.
    """

    rtt_us: int
    min_rtt_us: int
    congestion_window: int
    segments: int
    retransmissions: int
    spurious: int
    reordered: int
    marked: int
    timeouts: int
    timeout_ms: int
    subflows: int = 1


def multipath_info(sender: socket.socket) -> TcpInfo:
    """Return the sums over all subflows of a multipath connection."""
    first, *others = [unpacked(info) for info in mptcp.subflow_infos(sender)] or [tcp_info(sender)]
    sums = zip(*(info[2:] for info in (first, *others)), strict=True)
    return TcpInfo(first.rtt_us, first.min_rtt_us, *map(sum, sums))


def tcp_info(sender: socket.socket) -> TcpInfo:
    """Return the fields of a socket."""
    return unpacked(sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, mptcp.TCP_INFO_BYTES))


def received_bytes(receiver: socket.socket) -> int:
    """Return the payload bytes that arrived in order at a socket whose peer has not closed it."""
    info = receiver.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, mptcp.TCP_INFO_BYTES)
    return int(struct.unpack_from("=Q", info, BYTES_RECEIVED)[0])


def unpacked(kernel_info: bytes) -> TcpInfo:
    """Return the fields of struct tcp_info; fields that an older kernel lacks are 0."""
    info = kernel_info.ljust(mptcp.TCP_INFO_BYTES, b"\0")

    def word(offset: int) -> int:
        value: int = struct.unpack_from("=I", info, offset)[0]
        return value

    return TcpInfo(
        rtt_us=word(68), min_rtt_us=word(148), congestion_window=word(80), segments=word(156),
        retransmissions=word(100), spurious=word(216), reordered=word(220), marked=word(196),
        timeouts=word(240) & 0xFFFF, timeout_ms=word(244),
    )  # fmt: skip
