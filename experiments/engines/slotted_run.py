"""UDP that is sent slot by slot on the kernel, and the queues that it fills."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from weft.experiments.engines.arrays import Ints
from weft.testbed.measure.occupancy import Occupancies, Occupancy
from weft.testbed.network.network import RunningNetwork
from weft.testbed.traffic import slotted_udp

MOST_LATE, MOST_LATE_WARNED = 0.05, 0.01  # fractions of slots


class SlottedObservation(NamedTuple):
    """Queues by node and port while the slots took place, and the slots that were sent late."""

    queues: Mapping[tuple[int, int], Occupancy]
    late_slots: int


def send(network: RunningNetwork, destinations: Ints, rate_bps: int) -> SlottedObservation:
    """Send the packets destinations[slot, host], -1 for none; a slot is a packet's time."""
    tables: list[Mapping[tuple[int, int], Occupancy]] = []
    with Occupancies(network) as queues:
        sent = slotted_udp.run(
            network,
            destinations.tolist(),
            rate_bps=rate_bps,
            at_begin=queues.begin,
            at_end=lambda: tables.append(queues.read()),
        )
    return SlottedObservation(tables[0], sent.late_slots)


def with_late_slots(verdict: str, late_fraction: float) -> str:
    """Return the fidelity verdict of a run in which so many slots were sent late."""
    if late_fraction > MOST_LATE:
        return "FAIL"
    return "WARN" if late_fraction > MOST_LATE_WARNED and verdict == "PASS" else verdict
