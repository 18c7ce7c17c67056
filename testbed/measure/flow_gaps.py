"""Gaps between packets of a flow at the sending hosts: flow_gaps.bpf.c, attached for a `with`.

    with FlowGaps(net) as watched:
        flows.run(...)
    watched.table.beyond(500)  # fraction of packets after a gap of 500 us and more

Schemes that choose a path for each flowlet see these gaps (LetFlow, FatPaths).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from weft.testbed.linux import libbpf, tc
from weft.testbed.measure.reordering import bounds_us, quantile
from weft.testbed.measure.watched_ports import Attachment, WatchedPorts

OBJECT = Path(__file__).with_name("flow_gaps.bpf.o")
PROGRAM = "gaps"
CLASSES = 128


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

    hook = tc.EGRESS_HOOK

    def load(self) -> libbpf.Object:
        return libbpf.Object(OBJECT)

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
