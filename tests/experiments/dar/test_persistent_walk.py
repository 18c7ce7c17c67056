"""The persistent walk of docs/dar.md settles every permutation without a spare link: a hundred
seeds in the iteration and under the daemons.  Without pauses many stay unsettled, since bad links
wander in step."""

from __future__ import annotations

import numpy as np
import pytest

from tests.daemons.dar.dar_fabric import Fabric
from weft.daemons.dar.iteration import GROWTHS, PAUSE_PERCENT, PERSISTENT, IterationRules
from weft.experiments.dar import simulation
from weft.experiments.dar.settings import destinations
from weft.experiments.engines.workloads import cross

SEEDS = 100


def iterations(n: int, r: int, m: int, rules: IterationRules, most: int) -> np.ndarray:
    """The iterations of SEEDS permutations; the excess never grows."""
    outcome = simulation.simulate(
        simulation.network(n, r, m),
        rules,
        simulation.WORST,
        SEEDS,
        np.random.default_rng(n * r),
        most=most,
    )
    assert outcome.counts[:, GROWTHS].sum() == 0
    return outcome.iterations


@pytest.mark.parametrize(
    ("n", "r", "m"), [(2, 2, 2), (4, 8, 4), (6, 7, 6), (8, 16, 8), (24, 48, 24)]
)
def test_every_permutation_settles_in_the_iteration(n: int, r: int, m: int) -> None:
    assert (iterations(n, r, m, PERSISTENT, 5_000) >= 0).all()


@pytest.mark.parametrize(("n", "r", "m", "p"), [(6, 5, 3, 2), (9, 7, 3, 3), (5, 9, 4, 2)])
def test_it_settles_for_larger_p_too(n: int, r: int, m: int, p: int) -> None:
    assert (iterations(n, r, m, PERSISTENT._replace(p=p), 5_000) >= 0).all()


def test_without_pauses_bad_links_follow_each_other_for_ever() -> None:
    assert (iterations(6, 7, 6, PERSISTENT._replace(pause_percent=0), 5_000) < 0).sum() > 20


def test_iterations_grow_in_proportion_to_the_leaves() -> None:
    """Informed requests without rests take r^1.7."""
    few, many = (iterations(8, r, 8, PERSISTENT, 20_000).mean() for r in (24, 96))
    assert 2.5 < many / few < 6.5
    informed = [iterations(8, r, 8, IterationRules(informed=1), 50_000).mean() for r in (24, 96)]
    assert informed[1] / informed[0] > 8


@pytest.mark.slow
@pytest.mark.parametrize("phases", ["together=1", "together=0"])
def test_every_permutation_settles_under_the_daemons(phases: str) -> None:
    for seed in range(SEEDS):
        fabric = Fabric("clos:n=4,r=8,m=4", f"p=1,informed=1,pause={PAUSE_PERCENT},{phases}")
        for src, dst in cross(np.random.default_rng(seed), 32, 4):
            fabric.flows.begin(src, dst)
        fabric.settle(within_s=20.0)


def test_traffic_between_leaves_has_no_flow_inside_one() -> None:
    rows = destinations(4, 5, "cross", 30, np.random.default_rng(1))
    assert rows.shape == (30, 20)
    assert all(sorted(row) == list(range(20)) for row in rows.tolist())
    assert (rows // 4 != np.arange(20) // 4).all()
    assert len({tuple(row) for row in rows.tolist()}) == 30
