"""When busy links sent, as the kernel saw it: fidelity.bpf.c, loaded for one run and read.

On a busy link the time between dequeues is packet size / rate.  HTB may be ahead of that by its
burst, and catches up what it sends late, so not single packets but windows of a burst's bytes are
compared with bytes / rate; where the burst is two frames, that is every other packet.  Packets of
the routing daemons, which HTB sends ahead and does not charge, are left out.  A dequeue costs 0.2
us.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from weft.testbed.linux import libbpf, live_port, tc
from weft.testbed.runs.network_handle import NetworkHandle, netlink_of, ports
from weft.topologies.core.link import ETHERNET_BYTES

OBJECT = Path(__file__).with_name("fidelity.bpf.o")
BUCKETS = 512
BUCKETS_PER_1 = 200
KEY = "=I"
VALUE = f"=Q6I8QII{BUCKETS}I"  # struct port
CONSTANTS = struct.Struct("=II")  # slot, control_port
HISTOGRAM = 17  # where it begins among the values


@dataclass(frozen=True)
class Gaps:
    """What one port, or several together, did.

    histogram: windows of a busy link by elapsed / ideal time, in steps of 1 / BUCKETS_PER_1, the
        last for the rest.
    packets, oversize, longest_bytes: those seen to leave, those among them longer than a frame, and
        the longest.
    missed: those that left unseen.
    worst_ns: by which a window was early or late.
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
        """How much less than its rate the link carried while it was busy; below 0 if more."""
        return 100 * (1 - self.ideal_ns / self.elapsed_ns) if self.elapsed_ns else 0.0

    def deviation_percent(self, percent: float) -> float:
        """The deviation from the ideal time, early or late, that `percent` % of the windows do not
        exceed.

        Known to half a percent; everything over 155 % counts as that.  ValueError if there was no
        window.
        """
        if not self.windows:
            raise ValueError("no window was counted: the link was never busy")
        distance = sorted((abs(bucket + 0.5 - BUCKETS_PER_1), bucket) for bucket in range(BUCKETS))
        counts = accumulate(self.histogram[bucket] for _, bucket in distance)
        wanted = self.windows * percent / 100
        return next(
            100 * far / BUCKETS_PER_1
            for (far, _), count in zip(distance, counts, strict=True)
            if count >= wanted
        )


def together(many: Iterable[Gaps]) -> Gaps:
    """Several ports as one."""
    every = list(many)
    histogram = [sum(counts) for counts in zip(*(one.histogram for one in every), strict=True)] or [
        0
    ] * BUCKETS
    return Gaps(
        sum(one.packets for one in every),
        sum(one.missed for one in every),
        sum(one.oversize for one in every),
        max((one.longest_bytes for one in every), default=0),
        sum(one.elapsed_ns for one in every),
        sum(one.ideal_ns for one in every),
        max((one.worst_ns for one in every), default=0),
        tuple(histogram),
    )


class GapMonitor:
    """Counts what every shaped port of a network does, from now until closed or until the end of
    its `with`.

    The rates are what the kernel holds.  BpfError if this kernel cannot do it; the text says why.
    """

    def __init__(self, net: NetworkHandle) -> None:
        shaped, own = _rates(net), ports(net)
        self._object = libbpf.Object(
            OBJECT,
            constants=CONSTANTS.pack(net.identity.slot, tc.CONTROL_PORT),
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

    def __enter__(self) -> GapMonitor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._object.close()

    @property
    def program_fd(self) -> int:
        """The descriptor of the program that counts whose cost can then be read."""
        return self._object.program_fd("dequeue")

    def read(self) -> dict[int, Gaps]:
        """What was counted so far for each shaped port, by interface index."""
        found = {}
        for index in self._indexes:
            value = self._map[index,]
            *_, packets, missed, oversize, elapsed_ns, ideal_ns, longest, worst = value[:HISTOGRAM]
            histogram = value[HISTOGRAM : HISTOGRAM + BUCKETS]
            found[index] = Gaps(
                packets, missed, oversize, longest, elapsed_ns, ideal_ns, worst, histogram
            )
        return found


def _entry(rate_bps: int, frame_bytes: int, inode: int) -> tuple[int, ...]:
    burst = tc.burst_bytes(rate_bps, frame_bytes)
    # After an idle time HTB may send a burst and one frame more before it holds to the rate.
    settings = (rate_bps // 8, burst, burst + frame_bytes, frame_bytes, inode)
    return (*settings, *[0] * (HISTOGRAM - len(settings) + BUCKETS))


def _rates(net: NetworkHandle) -> dict[int, tuple[int, int]]:
    """Bits per second of every port that has a rate, and bytes of its longest frame, by interface
    index."""
    own = ports(net)
    found = {}
    for node in range(net.topology.nodes):
        socket = netlink_of(net, node)
        try:
            mtus = live_port.mtus(socket)
            for index, shape in tc.shapes(socket).items():
                if index in own and shape.rate_bps:
                    found[index] = shape.rate_bps, mtus[index] + ETHERNET_BYTES
        finally:
            socket.close()
    return found
