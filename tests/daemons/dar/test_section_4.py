"""Section 4 in two engines: the daemons on simulated packets do what the slotted model does.

The daemons read their tables once a packet time here, so that they know new flows as soon as the
model's leaves do; reports and requests are events in both.
"""

import numpy as np
import pytest

from tests.daemons.dar.dar_fabric import Fabric
from weft.daemons.dar.iteration import IterationRules
from weft.experiments.dar.slotted_control import QUEUE, SlottedPlan, SpineScheme
from weft.experiments.dar.slotted_model import destinations, simulate

N, RATE, QUEUE_PACKETS, REST_SLOTS = 4, 0.48, 3, 16
SIZE, ROOM = 100, 32  # packets: of a message, and of a queue
LENGTH = round(SIZE / RATE)
RUNS = 60
SLOT_S = 1e-3


def by_daemons(ears: str) -> tuple[np.ndarray, np.ndarray]:
    """Return slots until the last move, and moves with swaps, of each permutation."""
    fabric = Fabric(
        f"clos:n={N},r={N},m={N}",
        f"detect=queue,queue={QUEUE_PACKETS},rest_us={round(REST_SLOTS * SLOT_S * 1e6)},"
        f"period_us={round(SLOT_S * 1e6)},active_us={round(3 * SLOT_S * 1e6)},ears={ears}",
    )
    flows, simulator = fabric.flows, fabric.simulator
    flows.rate, flows.packet_s = RATE, SLOT_S
    rng = np.random.default_rng(4)
    took, moved = [], []
    for number, permutation in enumerate(destinations(N, N, "worst", RUNS, rng)):
        began_s, before = simulator.now, fabric.total("moves") + fabric.total("swaps")
        for src, dst in enumerate(permutation.tolist()):
            flows.begin(src, dst, number)
        simulator.changed_s = 0.0
        simulator.run_for(LENGTH * SLOT_S)
        moved.append(fabric.total("moves") + fabric.total("swaps") - before)
        took.append((simulator.changed_s - began_s) / SLOT_S if moved[-1] else 0.0)
        for flow in flows.live():
            flows.end(flow)
        simulator.run_for(10 * SLOT_S)
    return np.array(took), np.array(moved)


def in_model(ears: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the same from the slotted model."""
    rules = IterationRules(p=2, folded=1, rest=REST_SLOTS)
    way = SpineScheme(QUEUE, rules, QUEUE_PACKETS, 1, int(ears == "first"))
    plan = SlottedPlan((N, N, N), RATE, "worst", SIZE, ROOM, 8 * RUNS * LENGTH, 0, 10)
    known = simulate(plan, way, np.random.default_rng(5))
    begun = known.hosts.began[known.hosts.began >= 0][:-1]
    moves, last = known.known.moved[: len(begun)].T
    return np.where(moves > 0, last - begun, 0), moves


@pytest.mark.parametrize("ears", ["behind", "first"])
def test_daemons_and_model_move_flows_alike(ears: str) -> None:
    for ours, theirs in zip(by_daemons(ears), in_model(ears), strict=True):
        error = np.sqrt(ours.var(ddof=1) / len(ours) + theirs.var(ddof=1) / len(theirs))
        assert theirs.mean() > 0
        assert abs(ours.mean() - theirs.mean()) <= 3.3 * error, (ours.mean(), theirs.mean(), error)
