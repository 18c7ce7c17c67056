"""Whether every link has its rate, delay and queue, to the nanosecond and to the packet: under the
virtual clock only.

Every port sends a few frames of our own at one instant.  What HTB's bucket holds leaves at once,
the rest a frame's time apart; the kernel stamps each where it has arrived and any delay is over.
One port of each kind sends more than its queue holds, so that it is seen how many wait.  Bridges do
not pass these frames on.

A port is left out where nothing arrives, since its link may have failed, and where others send
meanwhile.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from typing import NamedTuple

from weft.testbed.linux import clock, live_port, netns, tc
from weft.testbed.linux.process import allow_more_descriptors
from weft.testbed.measure.port_counters import PortCounterReader, PortCounters
from weft.testbed.plan.network_plan import FIRST_IFB, FIRST_PORT, mac
from weft.testbed.runs.network_handle import NetworkHandle, device, netlink_of, ports
from weft.topologies.core.link import ETHERNET_BYTES

ETHERTYPE = 0x88B5  # for experiments (IEEE 802)
NEAREST_BRIDGE = bytes.fromhex("0180c200000e")  # no bridge forwards what is sent to it
SO_SNDBUFFORCE, SO_RCVBUFFORCE, SO_TIMESTAMPNS = 32, 33, 35
STAMP = struct.Struct("=qq")
FRAMES = 6  # more than leave at once, and two more
LONGEST_QUEUE = 5000  # packets; a longer one is not filled
NAP_S = 1e-6
TOO_MANY = 4  # frames more than a queue holds
FAILED = (errno.ENETDOWN, errno.ENXIO)  # what a link says that has failed
BUFFER_FRAMES = 3  # as many bytes of a socket's memory a frame takes, at most


class PortConfiguration(NamedTuple):
    """What the kernel holds for a port, and for the delay at the other end of its link.

    frame_bytes: of the longest frame.  burst_ns: what may leave at once, as the time that it takes.
    trims: whether headers have a queue of their own.
    """

    rate_bps: int
    frame_bytes: int
    queue_packets: int
    burst_ns: int
    delay_us: int
    hop_ns: int = 0
    trims: bool = False

    @property
    def frame_ns(self) -> float:
        """How long the port takes to send a frame."""
        return 8e9 * self.frame_bytes / self.rate_bps

    @property
    def at_once(self) -> int:
        """How many frames leave a port that has been idle before the next must wait: HTB sends
        until it is in debt."""
        tokens_ns, frames = self.burst_ns, 0
        while tokens_ns >= 0:
            tokens_ns -= int(self.frame_ns)
            frames += 1
        return frames


class Deviation(NamedTuple):
    """How far a port is from what it should be: the gap between its last two frames, the delay of
    its first one, and how many arrived, more or fewer."""

    gap_ns: float
    delay_ns: int
    packets: int


class SentBurst(NamedTuple):
    """What a port was given, of which so many should arrive; when, on CLOCK_REALTIME."""

    kind: PortConfiguration
    frames: int
    arriving: int
    at_ns: int = 0


def deviations(net: NetworkHandle) -> dict[int, Deviation]:
    """What was found of each port that has a rate and is not left out, by interface index.

    Returns when every queue is empty again and every bucket full.
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
        _first_headers(net, receivers, planned)
        before = counters.snapshot()
        sent = _send(net, receivers, planned)
        clock.sleep(max(_lasts_s(one) for one in sent.values()))
        after = counters.snapshot().since(before).ports
        stamps: dict[str, list[int]] = {}
        for receiver in receivers.values():
            _take(receiver, stamps)
    found = {}
    for index, one in sent.items():
        arrived = stamps.get(_far_device(net, index), [])
        if len(arrived) > 1 and _entered(after[index]) == one.frames:
            found[index] = _deviation(one, arrived)
    return found


def _planned(net: NetworkHandle) -> dict[int, SentBurst]:
    """How many frames each port that has a rate is to send, by interface index."""
    shapes: dict[int, tc.DeviceDisciplines] = {}
    mtus: dict[int, int] = {}
    for node in range(net.topology.nodes):
        with closing(netlink_of(net, node)) as one:
            shapes |= tc.shapes(one)
            mtus |= live_port.mtus(one)
    planned: dict[int, SentBurst] = {}
    filled = set()
    for index in ports(net):
        shape = shapes.get(index)
        if shape is None or not shape.rate_bps or shape.queue_packets is None:
            continue
        far = shapes.get(_far_index(net, index) - FIRST_PORT + FIRST_IFB)
        kind = PortConfiguration(
            shape.rate_bps,
            mtus[index] + ETHERNET_BYTES,
            shape.queue_packets,
            shape.burst_ns,
            (far and far.delay_us) or 0,
            far.hop_ns if far else 0,
            shape.header_packets is not None,
        )
        held = kind.at_once + kind.queue_packets
        if kind.queue_packets <= LONGEST_QUEUE and kind not in filled:
            filled.add(kind)
            planned[index] = SentBurst(kind, held + TOO_MANY, held)
        else:
            planned[index] = SentBurst(kind, min(FRAMES, held), min(FRAMES, held))
    return planned


def _far(net: NetworkHandle, index: int) -> tuple[int, int]:
    """The node and the port at the other end of a port's link."""
    node, port = ports(net)[index]
    return next((peer, far) for own, peer, far, _ in net.topology.ports(node) if own == port)


def _far_index(net: NetworkHandle, index: int) -> int:
    return net.ifindex(*_far(net, index))


def _far_device(net: NetworkHandle, index: int) -> str:
    return device(net, *_far(net, index))


def _receiver(
    net: NetworkHandle, node: int, planned: Mapping[int, SentBurst], stack: ExitStack
) -> socket.socket:
    """A socket for what is sent from and to the ports of `node`, with room for all of it."""
    with netns.inside(net.netns(node)):
        made = stack.enter_context(
            socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
        )
    peers = [net.ifindex(peer, far) for _, peer, far, _ in net.topology.ports(node)]
    own = [net.ifindex(node, port) for port, *_ in net.topology.ports(node)]
    for option, indexes in ((SO_RCVBUFFORCE, peers), (SO_SNDBUFFORCE, own)):
        sent = [planned[index] for index in indexes if index in planned]
        made.setsockopt(
            socket.SOL_SOCKET,
            option,
            BUFFER_FRAMES * sum(one.frames * one.kind.frame_bytes for one in sent),
        )
    made.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    made.setblocking(False)
    return made


def _first_headers(
    net: NetworkHandle, sockets: Mapping[int, socket.socket], planned: Mapping[int, SentBurst]
) -> None:
    """Let a header pass every port that has a class for them, and wait until all have arrived.

    The first packet of a class of HTB goes at its own rate, however far ahead of its rate the link
    is: so it is ours. The frames that follow are the first of the other class.
    """
    own = ports(net)
    trimming = {index: one for index, one in planned.items() if one.kind.trims}
    for index in trimming:
        node, port = own[index]
        header = _frame(node, port, tc.HEADER_BYTES)
        sockets[node].setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, tc.HEADER_PRIORITY)
        try:
            sockets[node].sendto(header, (device(net, node, port), ETHERTYPE))
        except OSError as error:
            if error.errno not in FAILED:  # of which _send() takes care
                raise
        sockets[node].setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 0)
    if trimming:
        clock.sleep(max(_lasts_s(one._replace(arriving=1)) for one in trimming.values()))
        for one in sockets.values():
            _take(one, {})


def _send(
    net: NetworkHandle, sockets: Mapping[int, socket.socket], planned: Mapping[int, SentBurst]
) -> dict[int, SentBurst]:
    """Send, all at one instant; ports whose carrier is off are missing in what is returned."""
    sent = {}
    own = ports(net)
    clock.sleep(NAP_S)  # whoever has read the clock often sleeps after he has read it once more
    at_ns = clock.wall_ns()
    for index, one in planned.items():
        node, port = own[index]
        frame = _frame(node, port, one.kind.frame_bytes)
        for _ in range(one.frames):
            try:
                sockets[node].sendto(frame, (device(net, node, port), ETHERTYPE))
            except OSError as error:
                if error.errno in FAILED:
                    break
                # which says that the queue is full, as it should be
                if error.errno != errno.ENOBUFS:
                    raise
        else:
            sent[index] = one._replace(at_ns=at_ns)
    return sent


def _frame(node: int, port: int, length_bytes: int) -> bytes:
    """A frame of ours as it leaves that port, filled up to its length."""
    return (NEAREST_BRIDGE + mac(node, port) + struct.pack(">H", ETHERTYPE)).ljust(
        length_bytes, b"\0"
    )


def _lasts_s(one: SentBurst) -> float:
    """Until everything has arrived and the bucket is full again."""
    frames = one.arriving + one.kind.at_once + 1
    return (frames * max(one.kind.frame_ns, one.kind.hop_ns) + 1000 * one.kind.delay_us) / 1e9


def _take(receiver: socket.socket, stamps: dict[str, list[int]]) -> None:
    """When the frames that have arrived did so, on CLOCK_REALTIME in ns, in order, by device."""
    with suppress(BlockingIOError):
        while True:
            _, about, _, address = receiver.recvmsg(0, 64)
            seconds, ns = STAMP.unpack_from(about[0][2])
            stamps.setdefault(address[0], []).append(1_000_000_000 * seconds + ns)


def _entered(port: PortCounters) -> int:
    """Packets that were to wait in the queue of a port."""
    return port.sent_packets - port.control_packets + port.queue_drops


def _deviation(sent: SentBurst, arrived: list[int]) -> Deviation:
    kind = sent.kind
    gap_ns = abs(arrived[-1] - arrived[-2] - max(kind.frame_ns, kind.hop_ns))
    delay_ns = abs(arrived[0] - sent.at_ns - 1000 * kind.delay_us - kind.hop_ns)
    return Deviation(gap_ns, delay_ns, len(arrived) - sent.arriving)
