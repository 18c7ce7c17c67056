"""Queues of links: lengths over time (occupancy.bpf.c), times of dequeues (fidelity.bpf.c).

Lengths are exact, not sampled; they cost 0.1 us for each packet into and out of a queue.

On a busy link the time between dequeues is packet size / rate.  HTB may run ahead by its burst and
catches up late packets.  So windows of one burst of bytes are compared with bytes / rate; under the
virtual clock, where links have no bursts, windows of two frames.  Packets of the routing daemons,
which are sent ahead and not charged, are left out.  A dequeue costs 0.2 us.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from weft.testbed.linux import clock, libbpf, tc, tc_filters
from weft.testbed.linux.interface import interfaces
from weft.testbed.linux.process import Closing
from weft.testbed.runs.network_handle import NetworkHandle, netlink_of, ports
from weft.topologies.core.link import ETHERNET_BYTES

OCCUPANCY_OBJECT = Path(__file__).with_name("occupancy.bpf.o")
LENGTHS = 256
QUEUE = f"=QII{LENGTHS}Q"  # struct queue
OBJECT = Path(__file__).with_name("fidelity.bpf.o")
BUCKETS = 512
BUCKETS_PER_1 = 200
KEY = "=I"
VALUE = f"=Q6I8QII{BUCKETS}I"  # struct port
CONSTANTS = struct.Struct("=II")  # slot, control_port
HISTOGRAM = 17  # its first index among the values


@dataclass(frozen=True)
class Occupancy:
    """One queue, or several merged.

    Attributes:
        spent_ns: time at each length, the last for that length and more.
        longest: in packets.
    """

    spent_ns: tuple[int, ...]
    longest: int

    @property
    def mean_packets(self) -> float:
        """Return the mean length over time."""
        return sum(length * spent for length, spent in enumerate(self.spent_ns)) / max(
            1, sum(self.spent_ns)
        )

    @property
    def at_least(self) -> list[float]:
        """Return for each length the fraction of time in which the queue was at least that long."""
        total_ns = max(1, sum(self.spent_ns))
        tails_ns = list(accumulate(reversed(self.spent_ns)))
        return [tail_ns / total_ns for tail_ns in reversed(tails_ns)]


def merge_queues(queues: Iterable[Occupancy]) -> Occupancy:
    """Return the sum of several queues."""
    queues = list(queues)
    spent_ns = zip(*(queue.spent_ns for queue in queues), strict=True)
    longest = max((queue.longest for queue in queues), default=0)
    return Occupancy(tuple(map(sum, spent_ns)), longest)


class Occupancies:
    """Watch every queue of a network during a `with` block; `table` has them by (node, port)."""

    def __init__(self, net: NetworkHandle) -> None:
        self.net = net
        self._stack = ExitStack()
        self.table: Mapping[tuple[int, int], Occupancy] = {}

    def __enter__(self) -> Occupancies:
        slot = self.net.identity.slot
        entries = {"queues": 1 + max(index & 0xFFFF for index in ports(self.net))}
        with ExitStack() as stack:
            self._object = stack.enter_context(
                libbpf.Object(OCCUPANCY_OBJECT, constants=struct.pack("=I", slot), entries=entries)
            )
            self._queues = self._object.map("queues", "=I", QUEUE)
            self._began_ns = clock.monotonic_ns()
            self._object.attach("enqueue")
            self._object.attach("dequeue")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self._stack:
            self.table = self.read()

    def begin(self) -> None:
        """Reset the counters.

        Packets that wait now are not counted until a packet enters or leaves their queue.
        """
        self._began_ns = clock.monotonic_ns()
        zeros = (0,) * (3 + LENGTHS)
        for index in ports(self.net):
            self._queues[index & 0xFFFF,] = zeros

    def read(self) -> dict[tuple[int, int], Occupancy]:
        """Return the queues so far, by (node, port).

        A queue is empty before its first event, and keeps its length after its last.
        """
        now_ns = clock.monotonic_ns()
        queues = {}
        for index, place in ports(self.net).items():
            since_ns, length, longest, *spent = self._queues[index & 0xFFFF,]
            spent[min(length, LENGTHS - 1)] += now_ns - (since_ns or self._began_ns)
            spent[0] += now_ns - self._began_ns - sum(spent)
            queues[place] = Occupancy(tuple(spent), longest)
        return queues


@dataclass(frozen=True)
class Gaps:
    """Dequeues of one port, or of several merged.

    Attributes:
        packets: dequeues seen.
        missed: dequeues not seen.
        oversize: packets longer than a frame.
        longest_bytes: of all packets.
        worst_ns: largest deviation of a window, early or late.
        histogram: windows of a busy link by elapsed / ideal time, in steps of 1 / BUCKETS_PER_1;
            the last class holds the rest.
    """

    packets: int
    missed: int
    oversize: int
    longest_bytes: int
    elapsed_ns: int
    ideal_ns: int
    worst_ns: int
    histogram: tuple[int, ...]

    @property
    def windows(self) -> int:
        return sum(self.histogram)

    @property
    def shortfall_percent(self) -> float:
        """Return the unused part of the rate while busy; negative if the link sent more."""
        return 100 * (1 - self.ideal_ns / self.elapsed_ns) if self.elapsed_ns else 0.0

    def deviation_percent(self, percent: float) -> float:
        """Return the deviation from the ideal time that `percent` % of the windows do not exceed.

        Early and late count alike.  The resolution is 0.5 %; deviations over 155 % count as 155 %.

        Raises:
            ValueError: no window was counted.
        """
        if not self.windows:
            raise ValueError("no window was counted: the link was never busy")
        distance = sorted((abs(bucket + 0.5 - BUCKETS_PER_1), bucket) for bucket in range(BUCKETS))
        counts = accumulate(self.histogram[bucket] for _, bucket in distance)
        threshold = self.windows * percent / 100
        return next(
            100 * far / BUCKETS_PER_1
            for (far, _), count in zip(distance, counts, strict=True)
            if count >= threshold
        )


def merge_ports(ports: Iterable[Gaps]) -> Gaps:
    """Return the sum of several ports."""
    ports = list(ports)
    counts = zip(*(port.histogram for port in ports), strict=True)
    return Gaps(
        packets=sum(port.packets for port in ports),
        missed=sum(port.missed for port in ports),
        oversize=sum(port.oversize for port in ports),
        longest_bytes=max((port.longest_bytes for port in ports), default=0),
        elapsed_ns=sum(port.elapsed_ns for port in ports),
        ideal_ns=sum(port.ideal_ns for port in ports),
        worst_ns=max((port.worst_ns for port in ports), default=0),
        histogram=tuple(map(sum, counts)) or (0,) * BUCKETS,
    )


class GapMonitor(Closing):
    """Count dequeues of every shaped port of a network, until closed or for a `with` block.

    The rates are those in the kernel.

    Raises:
        BpfError: this kernel cannot load the program; the message says why.
    """

    def __init__(self, net: NetworkHandle) -> None:
        shaped = _rates(net)
        own = ports(net)
        self._object = libbpf.Object(
            OBJECT,
            constants=CONSTANTS.pack(net.identity.slot, tc_filters.CONTROL_PORT),
            entries={"ports": max(1, len(shaped))},
        )
        try:
            self._map = self._object.map("ports", KEY, VALUE)
            for index, (rate_bps, frame_bytes) in shaped.items():
                node, _ = own[index]
                self._map[index,] = _entry(rate_bps, frame_bytes, os.fstat(net.netns(node)).st_ino)
            self._indexes: Sequence[int] = list(shaped)
            self._object.attach("dequeue")
        except BaseException:
            self._object.close()
            raise

    def close(self) -> None:
        self._object.close()

    @property
    def program_fd(self) -> int:
        """Return the descriptor of the counting program, for reading its cost."""
        return self._object.program_fd("dequeue")

    def read(self) -> dict[int, Gaps]:
        """Return the counts so far of each shaped port, by interface index."""
        gaps = {}
        for index in self._indexes:
            value = self._map[index,]
            *_, packets, missed, oversize, elapsed_ns, ideal_ns, longest, worst = value[:HISTOGRAM]
            histogram = value[HISTOGRAM : HISTOGRAM + BUCKETS]
            gaps[index] = Gaps(
                packets, missed, oversize, longest, elapsed_ns, ideal_ns, worst, histogram
            )
        return gaps


def _entry(rate_bps: int, frame_bytes: int, inode: int) -> tuple[int, ...]:
    # After an idle time HTB may send a burst and one frame more before it holds to the rate.
    burst = tc.burst_bytes(rate_bps, frame_bytes)
    if clock.is_virtual():  # no burst, but windows of two frames
        burst = tc.LEAST_BURST_FRAMES * frame_bytes
    settings = (rate_bps // 8, burst, burst + frame_bytes, frame_bytes, inode)
    return (*settings, *[0] * (HISTOGRAM - len(settings) + BUCKETS))


def _rates(net: NetworkHandle) -> dict[int, tuple[int, int]]:
    """Return rate (bit/s) and longest frame (bytes) of each shaped port, by interface index."""
    own = ports(net)
    rates = {}
    for node in net.local_nodes:
        with closing(netlink_of(net, node)) as socket:
            states = interfaces(socket)
            for index, shape in tc.shapes(socket).items():
                if index in own and shape.rate_bps:
                    rates[index] = shape.rate_bps, states[index].mtu + ETHERNET_BYTES
    return rates
