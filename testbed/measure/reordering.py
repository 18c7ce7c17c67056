"""Reordering and one-way delay of packets: reorder.bpf.c, attached for a `with`.

    with Reordering(net) as watched:
        flows.run(...)
    watched.table.late_fraction

Exact, and TCP does not notice; 0.3 us a packet at the first switch and at the receiver.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from weft.testbed.linux import libbpf
from weft.testbed.measure.watched_ports import Attachment, WatchedPorts

OBJECT = Path(__file__).with_name("reorder.bpf.o")
WINDOW, EXTENTS, DELAYS = 1024, 256, 128
SLOTS = 1024  # flows at one time whose delays and extents are kept apart
KEY = "=4s4s4sI"  # struct flow_key
FLOW = "=4x7IQQ"  # struct flow
UNIT_US = 1.024


class FlowOrder(NamedTuple):
    """The packets with payload of one flow; addresses as in a packet.

    late: that arrived after a later one.  retransmitted: that were sent again.
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

    extents: late packets by how many packets ago the first later one had come, 255 for that and
        more.
    delays: packets by their one-way delay, the lower bounds of whose classes are bounds_us().
    """

    flows: tuple[FlowOrder, ...]
    extents: tuple[int, ...]
    delays: tuple[int, ...]

    def total(self, key: str) -> int:
        """The sum of a count over all flows."""
        return sum(getattr(one, key) for one in self.flows)

    @property
    def late_fraction(self) -> float:
        """Late packets among those received."""
        return self.total("late") / max(1, self.total("received"))

    @property
    def lost(self) -> int:
        """Packets that were sent and did not arrive, or not yet."""
        return self.total("sent") - self.total("received")

    @property
    def mean_delay_us(self) -> float:
        """From the first switch to the receiver."""
        received = max(1, self.total("received"))
        return sum(one.delay_us * one.received for one in self.flows) / received

    def extent(self, percent: float) -> int:
        """The extent that `percent` % of the late packets do not exceed; 0 if none was late."""
        return quantile(self.extents, percent)

    def delay_us(self, percent: float) -> float:
        """The delay that `percent` % of the packets do not reach, to the next class of the
        histogram."""
        return bounds_us()[min(DELAYS - 1, quantile(self.delays, percent) + 1)]


def bounds_us() -> list[float]:
    """The lower bounds of the classes of delays: four for each doubling."""
    units = [b if b < 8 else (4 + b % 4) << (b // 4 - 1) for b in range(DELAYS)]
    return [unit * UNIT_US for unit in units]


def quantile(histogram: Sequence[int], percent: float) -> int:
    """The first class up to which there are `percent` % of all; 0 for an empty histogram."""
    wanted, count = sum(histogram) * percent / 100, 0
    for i, here in enumerate(histogram):
        count += here
        if here and count >= wanted:
            return i
    return 0


class Reordering(WatchedPorts[OrderTable]):
    """Watches all packets with payload between the hosts of a fabric during its `with`; then
    `table` has them."""

    def load(self) -> libbpf.Object:
        entries = {"sent_ns": SLOTS * WINDOW, "passed": SLOTS * WINDOW}
        return libbpf.Object(OBJECT, constants=struct.pack("=I", SLOTS), entries=entries)

    def places(self) -> list[Attachment]:
        """Every host's port, and the switch's port behind it."""
        topology = self.net.topology
        found = []
        for host in range(topology.servers):
            ((port, switch, behind, _),) = topology.ports(host)
            found += [Attachment(host, port, "check"), Attachment(switch, behind, "stamp")]
        return found

    def read(self) -> OrderTable:
        flows = self._object.map("flows", KEY, FLOW)
        found = []
        for key in flows:
            source, destination, ports, protocol = key
            _, _, _, sent, received, late, retransmitted, payload_bytes, delay_ns = flows[key]
            found.append(
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
        return OrderTable(tuple(found), tuple(sums[:EXTENTS]), tuple(sums[EXTENTS:]))
