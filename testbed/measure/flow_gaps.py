"""How long flows are silent between two packets, where hosts send them: flow_gaps.bpf.c, attached
for a `with`.

    with FlowGaps(net) as watched:
        flows.run(...)
    watched.table.beyond(500)     # the fraction of packets that came after more than 500 us of
    silence

Whoever chooses a path for each flowlet sees these gaps (LetFlow, FatPaths).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from weft.testbed.linux import libbpf, tc
from weft.testbed.measure.reordering import bounds_us
from weft.testbed.measure.watched_ports import Attachment, WatchedPorts

OBJECT = Path(__file__).with_name("flow_gaps.bpf.o")
PROGRAM = "gaps"
CLASSES = 128


@dataclass(frozen=True)
class GapTable:
    """gaps: packets by the silence of their flow before them, the lower bounds of whose classes are
    bounds_us().
    flows: how many there were, whose first packets have none."""

    gaps: tuple[int, ...]
    flows: int

    @property
    def packets(self) -> int:
        """Packets that were not their flow's first."""
        return sum(self.gaps)

    def beyond(self, us: float) -> float:
        """The fraction of packets before which their flow was silent for at least `us`, to the next
        lower bound of a class."""
        counted = sum(count for count, low in zip(self.gaps, bounds_us(), strict=True) if low >= us)
        return counted / max(1, self.packets)

    def quantile_us(self, percent: float) -> float:
        """What `percent` % of the gaps do not exceed, to the next class."""
        wanted, count = self.packets * percent / 100, 0
        bounds = bounds_us()
        for at, here in enumerate(self.gaps):
            count += here
            if here and count >= wanted:
                return bounds[min(CLASSES - 1, at + 1)]
        return 0.0


class FlowGaps(WatchedPorts[GapTable]):
    """Watches what the hosts of a fabric send during its `with`; then `table` has it."""

    hook = tc.EGRESS_HOOK

    def load(self) -> libbpf.Object:
        return libbpf.Object(OBJECT)

    def places(self) -> list[Attachment]:
        """Every host's port."""
        topology = self.net.topology
        return [
            Attachment(host, port, PROGRAM)
            for host in range(topology.servers)
            for port, *_ in topology.ports(host)
        ]

    def read(self) -> GapTable:
        sums = self.totals("histograms", CLASSES + 1)
        return GapTable(tuple(sums[:CLASSES]), sums[CLASSES])
