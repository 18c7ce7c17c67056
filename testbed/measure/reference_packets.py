"""Exactness of rate, delay and queue of every link, under the virtual clock only.

Every port sends a few reference frames at one instant.  They arrive a frame's time apart, and the
kernel stamps each.  One port of each configuration sends more than its queue holds, which measures
the queue.  Bridges do not forward these frames.

A port is left out if nothing arrives (its link may have failed) or if others send meanwhile.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from typing import NamedTuple

from weft.testbed.linux import clock, netns, tc
from weft.testbed.linux.interface import InterfaceState, interfaces
from weft.testbed.linux.process import allow_more_descriptors
from weft.testbed.measure.kernel_counters import PortCounterReader, PortCounters
from weft.testbed.plan.network_plan import mac
from weft.testbed.runs.network_handle import NetworkHandle, device, netlink_of, ports
from weft.topologies.core.link import ETHERNET_BYTES

ETHERTYPE = 0x88B5  # local experiments (IEEE 802)
NEAREST_BRIDGE = bytes.fromhex("0180c200000e")  # bridges do not forward it
SO_SNDBUFFORCE, SO_RCVBUFFORCE, SO_TIMESTAMPNS = 32, 33, 35
STAMP = struct.Struct("=qq")
FRAMES = 4
LONGEST_QUEUE = 5000  # packets; longer queues are not filled
NAP_S = 1e-6
EXCESS_FRAMES = 4  # above the length of a queue
FAILED = (errno.ENETDOWN, errno.ENXIO)  # errors of a failed link
BUFFER_FACTOR = 3  # socket memory of a frame / its bytes, at most


class PortConfiguration(NamedTuple):
    """Shape of a port in the kernel, and the delay of its link.

    Attributes:
        frame_bytes: of the longest frame.
        hop_ns: time between frames that the far end adds.
    """

    rate_bps: int
    frame_bytes: int
    queue_packets: int
    delay_us: int
    hop_ns: int = 0

    @property
    def frame_ns(self) -> float:
        """Return the time that a frame takes at the port's rate."""
        return 8e9 * self.frame_bytes / self.rate_bps

    @property
    def capacity(self) -> int:
        """Return the frames that an idle port takes: one is sent, the others wait."""
        return 1 + self.queue_packets


class Deviation(NamedTuple):
    """Deviation of a port from its configuration.

    Attributes:
        gap_ns: of the gap between its last two frames.
        delay_ns: of the delay of its first frame.
        packets: arrivals above or below the expected number.
    """

    gap_ns: float
    delay_ns: int
    packets: int


class SentBurst(NamedTuple):
    """Frames for a port, the expected arrivals, and the send time on CLOCK_REALTIME."""

    port: PortConfiguration
    frames: int
    arriving: int
    sent_ns: int = 0


def deviations(net: NetworkHandle) -> dict[int, Deviation]:
    """Return the deviation of each shaped port that is not left out, by interface index.

    At the return every queue is empty.
    """
    planned = _planned(net)
    if not planned:
        return {}
    allow_more_descriptors(2 * net.topology.nodes + len(planned))
    with ExitStack() as stack:
        counters = stack.enter_context(PortCounterReader(net))
        receivers = {
            node: _receiver(net, node, planned, stack) for node in range(net.topology.nodes)
        }
        before = counters.snapshot()
        sent = _send(net, receivers, planned)
        clock.sleep(max(_duration_s(burst) for burst in sent.values()))
        after = counters.snapshot().since(before).ports
        stamps: dict[str, list[int]] = {}
        for receiver in receivers.values():
            _receive(receiver, stamps)
    results = {}
    for index, burst in sent.items():
        arrivals_ns = stamps.get(device(net, *_far(net, index)), [])
        if len(arrivals_ns) > 1 and _queued(after[index]) == burst.frames:
            results[index] = _deviation(burst, arrivals_ns)
    return results


def _planned(net: NetworkHandle) -> dict[int, SentBurst]:
    """Return the burst of each shaped port, by interface index."""
    planned: dict[int, SentBurst] = {}
    filled = set()
    for index, port in _configurations(net).items():
        if port.queue_packets <= LONGEST_QUEUE and port not in filled:
            filled.add(port)
            planned[index] = SentBurst(port, port.capacity + EXCESS_FRAMES, port.capacity)
        else:
            frames = min(FRAMES, port.capacity)
            planned[index] = SentBurst(port, frames, frames)
    return planned


def _configurations(net: NetworkHandle) -> dict[int, PortConfiguration]:
    """Return the shape of each port that has a rate and a queue, by interface index."""
    shapes: dict[int, tc.DeviceDisciplines] = {}
    states: dict[int, InterfaceState] = {}
    for node in range(net.topology.nodes):
        with closing(netlink_of(net, node)) as netlink_socket:
            shapes |= tc.shapes(netlink_socket)
            states |= interfaces(netlink_socket)
    configurations = {}
    for index in ports(net):
        shape = shapes.get(index)
        if shape is None or not shape.rate_bps or shape.queue_packets is None:
            continue
        configurations[index] = PortConfiguration(
            rate_bps=shape.rate_bps,
            frame_bytes=states[index].mtu + ETHERNET_BYTES,
            queue_packets=shape.queue_packets,
            delay_us=shape.delay_us or 0,
            hop_ns=shape.hop_ns,
        )
    return configurations


def _far(net: NetworkHandle, index: int) -> tuple[int, int]:
    """Return node and port at the other end of a port's link."""
    node, port = ports(net)[index]
    return next((peer, far) for own, peer, far, _ in net.topology.ports(node) if own == port)


def _receiver(
    net: NetworkHandle, node: int, planned: Mapping[int, SentBurst], stack: ExitStack
) -> socket.socket:
    """Return a socket for frames from and to the ports of `node`, with memory for all."""
    with netns.inside(net.netns(node)):
        receiver = stack.enter_context(
            socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
        )
    peers = [net.ifindex(peer, far) for _, peer, far, _ in net.topology.ports(node)]
    own = [net.ifindex(node, port) for port, *_ in net.topology.ports(node)]
    for option, indexes in ((SO_RCVBUFFORCE, peers), (SO_SNDBUFFORCE, own)):
        sent = [planned[index] for index in indexes if index in planned]
        size_bytes = sum(burst.frames * burst.port.frame_bytes for burst in sent)
        receiver.setsockopt(socket.SOL_SOCKET, option, BUFFER_FACTOR * size_bytes)
    receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    receiver.setblocking(False)
    return receiver


def _send(
    net: NetworkHandle, sockets: Mapping[int, socket.socket], planned: Mapping[int, SentBurst]
) -> dict[int, SentBurst]:
    """Send all bursts at one instant and return them; ports without carrier are left out."""
    sent = {}
    own = ports(net)
    clock.sleep(NAP_S)  # a thread that read the clock often would sleep at a later reading
    sent_ns = clock.wall_ns()
    for index, burst in planned.items():
        node, port = own[index]
        frame = _frame(node, port, burst.port.frame_bytes)
        for _ in range(burst.frames):
            try:
                sockets[node].sendto(frame, (device(net, node, port), ETHERTYPE))
            except OSError as error:
                if error.errno in FAILED:
                    break
                if error.errno != errno.ENOBUFS:  # the queue is full, as intended
                    raise
        else:
            sent[index] = burst._replace(sent_ns=sent_ns)
    return sent


def _frame(node: int, port: int, length_bytes: int) -> bytes:
    """Return a reference frame of that port, padded to its length."""
    header = NEAREST_BRIDGE + mac(node, port) + struct.pack(">H", ETHERTYPE)
    return header.ljust(length_bytes, b"\0")


def _duration_s(burst: SentBurst) -> float:
    """Return the time until all frames have arrived."""
    port = burst.port
    frames = burst.arriving + 1
    return (frames * max(port.frame_ns, port.hop_ns) + 1000 * port.delay_us) / 1e9


def _receive(receiver: socket.socket, stamps: dict[str, list[int]]) -> None:
    """Add the arrival times of waiting frames, in ns of CLOCK_REALTIME, by device."""
    with suppress(BlockingIOError):
        while True:
            _, ancillary, _, address = receiver.recvmsg(0, 64)
            seconds, ns = STAMP.unpack_from(ancillary[0][2])
            stamps.setdefault(address[0], []).append(1_000_000_000 * seconds + ns)


def _queued(port: PortCounters) -> int:
    """Return the packets that a port queued or dropped at its queue."""
    return port.sent_packets - port.control_packets + port.queue_drops


def _deviation(burst: SentBurst, arrivals_ns: list[int]) -> Deviation:
    port = burst.port
    gap_ns = abs(arrivals_ns[-1] - arrivals_ns[-2] - max(port.frame_ns, port.hop_ns))
    expected_ns = int(port.frame_ns) + 1000 * port.delay_us + port.hop_ns
    delay_ns = abs(arrivals_ns[0] - burst.sent_ns - expected_ns)
    return Deviation(gap_ns, delay_ns, len(arrivals_ns) - burst.arriving)
