"""Reordering and one-way delay of packets: reorder.bpf.c, attached during a `with` block.

    with Reordering(net) as watched:
        flows.run(...)
    watched.table.late_fraction

Exact and invisible to TCP; it costs 0.3 us a packet at the first switch and at the receiver.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from weft.testbed.linux import libbpf
from weft.testbed.measure.watched_ports import Attachment, WatchedPorts

OBJECT = Path(__file__).with_name("reorder.bpf.o")
WINDOW, EXTENTS, DELAYS = 1024, 256, 128
SLOTS = 1024  # concurrent flows with delays and extents of their own
KEY = "=4s4s4sI"  # struct flow_key
FLOW = "=4x7IQQ"  # struct flow
UNIT_US = 1.024


class FlowOrder(NamedTuple):
    """Packets with payload of one flow; addresses as in a packet.

    Attributes:
        late: arrived after a later one.
        retransmitted: sent again.
    """

    source: bytes
    destination: bytes
    ports: tuple[int, int]
    protocol: int
    sent: int
    received: int
    late: int
    retransmitted: int
    payload_bytes: int
    delay_us: float


@dataclass(frozen=True)
class OrderTable:
    """All flows.

    Attributes:
        flows: sorted, because the map's order is random.
        extents: late packets by the packets received since the first later one, at most 255.
        delays: packets by one-way delay; bounds_us() has the lower bounds of the classes.
    """

    flows: tuple[FlowOrder, ...]
    extents: tuple[int, ...]
    delays: tuple[int, ...]

    def total(self, key: str) -> int:
        """Return the sum of a counter over all flows."""
        return sum(getattr(flow, key) for flow in self.flows)

    @property
    def late_fraction(self) -> float:
        """Return the fraction of received packets that were late."""
        return self.total("late") / max(1, self.total("received"))

    @property
    def lost(self) -> int:
        """Return the packets sent that have not arrived."""
        return self.total("sent") - self.total("received")

    @property
    def mean_delay_us(self) -> float:
        """Return the mean delay from the first switch to the receiver."""
        received = max(1, self.total("received"))
        return sum(flow.delay_us * flow.received for flow in self.flows) / received

    def extent(self, percent: float) -> int:
        """Return the extent that `percent` % of the late packets do not exceed, or 0."""
        return quantile(self.extents, percent)

    def delay_us(self, percent: float) -> float:
        """Return the delay that `percent` % of the packets do not reach, to the next class."""
        return bounds_us()[min(DELAYS - 1, quantile(self.delays, percent) + 1)]


def bounds_us() -> list[float]:
    """Return the lower bounds of the classes of delays, four for each doubling."""
    units = [b if b < 8 else (4 + b % 4) << (b // 4 - 1) for b in range(DELAYS)]
    return [unit * UNIT_US for unit in units]


def quantile(histogram: Sequence[int], percent: float) -> int:
    """Return the first class that reaches `percent` % of the total; 0 for an empty histogram."""
    threshold = sum(histogram) * percent / 100
    for index, count in enumerate(accumulate(histogram)):
        if histogram[index] and count >= threshold:
            return index
    return 0


class Reordering(WatchedPorts[OrderTable]):
    """Watch all packets with payload between the hosts of a fabric."""

    def load(self) -> libbpf.Object:
        entries = {"sent_ns": SLOTS * WINDOW, "passed": SLOTS * WINDOW}
        return libbpf.Object(OBJECT, constants=struct.pack("=I", SLOTS), entries=entries)

    def places(self) -> list[Attachment]:
        topology = self.net.topology
        attachments = []
        for host in range(topology.servers):
            ((port, switch, behind, _),) = topology.ports(host)
            attachments += [Attachment(host, port, "check"), Attachment(switch, behind, "stamp")]
        return attachments

    def read(self) -> OrderTable:
        flows = self._object.map("flows", KEY, FLOW)
        orders = []
        for key in flows:
            source, destination, ports, protocol = key
            _, _, _, sent, received, late, retransmitted, payload_bytes, delay_ns = flows[key]
            orders.append(
                FlowOrder(
                    source=source,
                    destination=destination,
                    ports=struct.unpack(">HH", ports),
                    protocol=protocol,
                    sent=sent,
                    received=received,
                    late=late,
                    retransmitted=retransmitted,
                    payload_bytes=payload_bytes,
                    delay_us=delay_ns / 1000 / max(1, received),
                )
            )
        sums = self.totals("histograms", EXTENTS + DELAYS)
        return OrderTable(tuple(sorted(orders)), tuple(sums[:EXTENTS]), tuple(sums[EXTENTS:]))
