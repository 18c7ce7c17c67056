"""Packets at ports of a fabric during a `with` block: reordering, delay, and gaps within a flow.

reorder.bpf.c and flow_gaps.bpf.c are attached to the ports.

    with FlowGaps(net) as watched:
        flows.run(...)
    watched.table.beyond(500)  # fraction of packets after a gap of 500 us and more

Schemes that choose a path for each flowlet see these gaps (LetFlow, FatPaths).
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Generic, NamedTuple, Self, TypeVar

from weft.testbed.data_plane import port_programs
from weft.testbed.data_plane.port_programs import CounterMap, PortFilter
from weft.testbed.linux import libbpf, tc_filters
from weft.testbed.runs.network_handle import NetworkHandle

PRIORITY = 5  # of the filters: before those of the data plane and of the choice of layers
Observation = TypeVar("Observation")
OBJECT = Path(__file__).with_name("reorder.bpf.o")
WINDOW, EXTENTS, DELAYS = 1024, 256, 128
SLOTS = 1024  # concurrent flows with delays and extents of their own
KEY = "=4s4s4sI"  # struct flow_key
FLOW = "=4x7IQQ"  # struct flow
UNIT_US = 1.024
GAPS_OBJECT = Path(__file__).with_name("flow_gaps.bpf.o")
PROGRAM = "gaps"
CLASSES = 128


class Attachment(NamedTuple):
    """Port that one of the object's programs is attached to."""

    node: int
    port: int
    program: str


class WatchedPorts(ABC, Generic[Observation]):
    """Watch packets during a `with` block; then read `table`.

    Attributes:
        hook: side of the ports' interfaces.
    """

    hook = tc_filters.INGRESS_HOOK

    def __init__(self, net: NetworkHandle) -> None:
        self.net = net
        self._stack = ExitStack()
        self._table: Observation | None = None

    @abstractmethod
    def load(self) -> libbpf.Object:
        """Return the loaded programs."""

    @abstractmethod
    def places(self) -> Sequence[Attachment]:
        """Return the ports, with the program for each."""

    @abstractmethod
    def read(self) -> Observation:
        """Return the result so far."""

    @property
    def table(self) -> Observation:
        """Return the result.

        Raises:
            RuntimeError: the `with` block has not ended.
        """
        if self._table is None:
            raise RuntimeError(f"{type(self).__name__}: not finished yet")
        return self._table

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._object = self.load()
            stack.callback(self._object.close)
            stack.callback(self._detach)
            for node, port, program in self.places():
                fd = self._object.program_fd(program)
                port_filter = PortFilter(program, fd, self.hook)
                port_programs.attach(self.net, node, [port], [port_filter], PRIORITY)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self._stack:
            self._table = self.read()

    def totals(self, name: str, count: int) -> list[int]:
        """Return the `count` counters of the map called `name`, summed over processors."""
        return CounterMap(self._object, name, count).sums()

    def _detach(self) -> None:
        for node, port, _ in self.places():
            port_programs.detach(self.net, node, [port], self.hook, PRIORITY)


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


@dataclass(frozen=True)
class GapTable:
    """Gaps of all flows.

    Attributes:
        gaps: packets by the gap before them; bounds_us() has the lower bounds of the classes.
        flows: their number; the first packet of a flow has no gap.
    """

    gaps: tuple[int, ...]
    flows: int

    @property
    def packets(self) -> int:
        """Return the packets other than the first of each flow."""
        return sum(self.gaps)

    def beyond(self, us: float) -> float:
        """Return the fraction of packets after a gap of at least `us`, to the next class bound."""
        counted = sum(count for count, low in zip(self.gaps, bounds_us(), strict=True) if low >= us)
        return counted / max(1, self.packets)

    def quantile_us(self, percent: float) -> float:
        """Return the gap that `percent` % of the packets do not exceed, to the next class."""
        if not self.packets:
            return 0.0
        return bounds_us()[min(CLASSES - 1, quantile(self.gaps, percent) + 1)]


class FlowGaps(WatchedPorts[GapTable]):
    """Watch the packets that hosts of a fabric send."""

    hook = tc_filters.EGRESS_HOOK

    def load(self) -> libbpf.Object:
        return libbpf.Object(GAPS_OBJECT)

    def places(self) -> list[Attachment]:
        topology = self.net.topology
        return [
            Attachment(host, port, PROGRAM)
            for host in range(topology.servers)
            for port, *_ in topology.ports(host)
        ]

    def read(self) -> GapTable:
        sums = self.totals("histograms", CLASSES + 1)
        return GapTable(tuple(sums[:CLASSES]), sums[CLASSES])
