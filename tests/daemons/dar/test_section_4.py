"""Section 4 in two engines: the daemons beside simulated packets do what they do beside the fluid
flows of the simulator, which counts a queue by arithmetic alone.

Daemons read their tables, and are asked for their moves, once a packet time here.
"""

import numpy as np
import pytest

from tests.daemons.dar.dar_fabric import Fabric
from tests.experiments.dar.test_on_kernel import one
from weft.experiments.dar import dar_settling
from weft.experiments.dar.settings import destinations

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


def beside_packets(ears: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the same of simulated packets."""
    run = one(
        dar_settling.EXPERIMENT,
        engine="packet",
        topology=f"clos:n={N},r={N},m={N}",
        scheme="dar",
        key="flow",
        traffic="worst",
        host_gbps=40 * RATE,
        preset="ours",
        room_packets=ROOM,
        message_kb=2 * SIZE,
        period_slots=1,
        ears=ears,
        time_us=(RUNS + 1) * SIZE / RATE * 0.4096,
    )
    took, moved, _ = dar_settling.on_packets(run).finished()
    return took, moved


@pytest.mark.parametrize("ears", ["behind", "first"])
def test_daemons_move_flows_alike_beside_packets_and_fluids(
    ears: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dar_settling, "PACKET_SLOTS", 1)
    for ours, theirs in zip(by_daemons(ears), beside_packets(ears), strict=True):
        error = np.sqrt(ours.var(ddof=1) / len(ours) + theirs.var(ddof=1) / len(theirs))
        assert theirs.mean() > 0
        assert abs(ours.mean() - theirs.mean()) <= 3.3 * error, (ours.mean(), theirs.mean(), error)
