"""A TCP flow to generate, its result, and what the kernel says of its sender (struct tcp_info)."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
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


class Flow(NamedTuple):
    """`size_bytes` of payload from host `src` to host `dst`, `at_s` after the beginning.

    None: until the end.
    """

    at_s: float
    src: int
    dst: int
    size_bytes: int | None


@dataclass(frozen=True)
class FlowResult:
    """Result of a flow; times are since the beginning of the run.

    ended_s: time at which the receiver had all bytes; None for an endless or unfinished flow.
    received_bytes: within the measured time.
    error: reason of a broken connection.
    number: of the flow among those of all machines, in order; 0 on one machine.
    """

    flow: Flow
    began_s: float
    ended_s: float | None
    received_bytes: int
    tcp: TcpInfo | None
    error: str | None
    number: int = 0

    @property
    def seconds(self) -> float | None:
        """Completion time, from the first packet of the handshake to the last byte."""
        return None if self.ended_s is None else self.ended_s - self.began_s


@dataclass(frozen=True)
class FlowResults:
    """All flows of one run, in order of their beginning.

    measured_s: time in which received_bytes were counted.
    late_s: largest delay of a flow's start, by the generator.
    congestion_control, transport, sysctls: of the measured TCP.
    """

    results: tuple[FlowResult, ...]
    measured_s: float
    late_s: float
    congestion_control: str
    sysctls: Mapping[str, str]
    transport: str = "tcp"

    @property
    def goodput_bps(self) -> float:
        """Payload bits received per second, all flows together."""
        return 8 * sum(result.received_bytes for result in self.results) / self.measured_s

    @property
    def unfinished(self) -> int:
        """Number of finite flows that did not end."""
        return sum(
            result.flow.size_bytes is not None and result.ended_s is None for result in self.results
        )

    def total(self, key: str) -> int:
        """Return the sum of a field of TcpInfo over all flows."""
        return sum(getattr(result.tcp, key) for result in self.results if result.tcp)
