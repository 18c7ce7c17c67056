"""DAR on fat-trees of three tiers, level by level: no link carries two flows in the end."""

from collections import Counter

import numpy as np
import pytest

from weft.daemons.dar.iteration import GROWTHS, IterationRules
from weft.experiments.dar import dar_tiers
from weft.experiments.dar.dar_tiers import permutation, planes, settle
from weft.experiments.dar.simulation import network

INFORMED = IterationRules(informed=1)


@pytest.mark.parametrize("d", [2, 3, 5])
@pytest.mark.parametrize("traffic", ["random", "worst"])
def test_each_link_of_a_fat_tree_carries_a_flow_at_most(d, traffic):
    rng = np.random.default_rng(d)
    first, second = network(d, 2 * d * d, d), network(d, 2 * d, d)
    for _ in range(20):
        state = rng.integers(1, 1 << 32, 4)
        destination = permutation(d, traffic, rng)
        level = settle(first, destination, INFORMED, state)
        assert level.counts[GROWTHS] == 0
        plane_of = np.array(first.spine)
        loads: Counter[tuple] = Counter()
        for plane, edges in enumerate(planes(d, first)):
            assert settle(second, edges, INFORMED._replace(folded=1), state).counts[GROWTHS] == 0
            core_of = list(second.spine)
            for src in np.flatnonzero(plane_of == plane):
                edge, far_edge = src // d, destination[src] // d
                pod, far_pod = edge // d, far_edge // d
                loads.update([("up", edge, plane), ("down", far_edge, plane)])
                if pod != far_pod:
                    core = core_of[edge]
                    loads.update([("up", pod, plane, core), ("down", far_pod, plane, core)])
        assert set(loads.values()) == {1}
        assert sum(loads.values()) >= 2 * len(destination)


def test_worst_flows_of_a_switch_go_to_different_pods():
    for d in (2, 4, 7):
        destination = permutation(d, "worst", np.random.default_rng(1))
        assert sorted(destination) == list(range(2 * d**3))
        pods = (destination // d**2).reshape(-1, d)
        assert all(len(set(own)) == d for own in pods.tolist())


def test_flows_that_do_not_settle_are_no_result(monkeypatch):
    monkeypatch.setattr(dar_tiers, "MOST_ITERATIONS", 1)
    d, rng = 4, np.random.default_rng(1)
    destination = permutation(d, "worst", rng)
    with pytest.raises(RuntimeError, match="not settled after 1 iterations"):
        settle(network(d, 2 * d * d, d), destination, INFORMED, rng.integers(1, 1 << 32, 4))
