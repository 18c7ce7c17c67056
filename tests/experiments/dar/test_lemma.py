"""The lemmas of docs/dar.md in every engine: the excess, flows above p summed over links, never
grows if requests are informed and each output leaf sends one at a time; nor above that of the
start if requests take time and each has one under way."""

from __future__ import annotations

import heapq
import random

import numpy as np
import pytest

from tests.daemons.dar.dar_fabric import Fabric
from weft.daemons.dar import iteration
from weft.daemons.dar.iteration import GROWTHS, NOWHERE, IterationRules, excess
from weft.experiments.dar import simulation

NETWORKS = [(2, 2, 2, 1), (4, 4, 4, 1), (5, 9, 5, 1), (6, 3, 8, 1), (6, 6, 3, 2), (7, 5, 3, 3)]


@pytest.mark.parametrize("traffic", [simulation.WORST, simulation.ANY])
@pytest.mark.parametrize(("n", "r", "m", "p"), NETWORKS)
def test_the_excess_never_grows_in_the_iteration(
    n: int, r: int, m: int, p: int, traffic: int
) -> None:
    outcome = simulation.simulate(
        simulation.network(n, r, m),
        IterationRules(p=p, informed=1),
        traffic,
        500,
        np.random.default_rng(n),
        most=100_000,
    )
    assert (outcome.iterations >= 0).all()
    assert outcome.iterations.sum() > 300
    assert outcome.counts[:, GROWTHS].sum() == 0


@pytest.mark.parametrize("rule", [{"informed": 0}, {"informed": 1, "every_link": 1}])
def test_the_excess_grows_without_the_maps_or_with_several_requests(rule: dict[str, int]) -> None:
    outcome = simulation.simulate(
        simulation.network(5, 5, 5),
        IterationRules(p=1, **rule),
        simulation.WORST,
        200,
        np.random.default_rng(1),
        most=100_000,
    )
    assert outcome.counts[:, GROWTHS].sum() > 0


def delayed(seed: int, most_delay: float, *, under_way: int, start: int = 0) -> list[int]:
    """The excess after each move on CLOS(5,8,5), whose leaves look once a period, each in a phase
    of its own, and whose requests take up to `most_delay` periods.

    under_way: requests of an output leaf that may be under way.
    """
    n, r, m = 5, 8, 5
    generator, rules = random.Random(seed), IterationRules(informed=1, start=start)
    net, state = simulation.network(n, r, m), np.array([seed + 1, 2, 3, 4])
    simulation.permute(net, simulation.WORST, state)
    iteration.place(net, rules, state)
    counts, excesses = [0] * iteration.COUNTERS, [excess(net, 1)]
    open_requests = [0] * r
    events = [(generator.random(), leaf, ()) for leaf in range(r)]
    heapq.heapify(events)
    while excesses[-1] and events[0][0] < 300:
        now, leaf, request = heapq.heappop(events)
        if request:
            flow, spine, room = request
            open_requests[leaf] -= 1
            if net.spine[flow] == spine:
                net.room[leaf * m : (leaf + 1) * m] = room
                iteration.move(net, rules, flow, 1, counts, state)
                excesses.append(excess(net, 1))
            continue
        heapq.heappush(events, (now + 1, leaf, ()))
        load = net.down[leaf * m : (leaf + 1) * m]
        if max(load) > 1 and open_requests[leaf] < under_way:
            open_requests[leaf] += 1
            flow = iteration.of_output(net, leaf, max(load), NOWHERE, state)
            request = flow, net.spine[flow], tuple(load)
            arrival = now + generator.uniform(0.05, 1) * most_delay
            heapq.heappush(events, (arrival, leaf, request))
    return excesses


@pytest.mark.parametrize("most_delay", [0.05, 0.5, 1.0, 3.0])
def test_the_excess_stays_below_its_start_where_requests_take_time(most_delay: float) -> None:
    runs = [delayed(seed, most_delay, under_way=1) for seed in range(60)]
    assert all(max(excesses) == excesses[0] for excesses in runs)
    assert sum(excesses[-1] == 0 for excesses in runs) > 50
    grows = sum(excesses != sorted(excesses, reverse=True) for excesses in runs)
    assert most_delay < 0.5 or grows > 5  # from one move to the next


def test_the_excess_exceeds_its_start_with_several_requests_under_way_or_full_uplinks() -> None:
    runs = [delayed(seed, 3.0, under_way=9) for seed in range(60)]
    assert any(max(excesses) > excesses[0] for excesses in runs)
    outcome = simulation.simulate(
        simulation.network(5, 8, 5),
        IterationRules(informed=1, start=iteration.RANDOM),
        simulation.WORST,
        200,
        np.random.default_rng(1),
        most=100_000,
    )
    assert outcome.counts[:, GROWTHS].sum() > 0


@pytest.mark.parametrize("options", ["together=1,cool=0", "together=1", ""])
@pytest.mark.parametrize("seed", range(2))
def test_the_excess_never_grows_under_the_daemons(options: str, seed: int) -> None:
    """The full rate without a spare link, leaves in step and in phases of their own."""
    fabric = Fabric("clos:n=5,r=5,m=5", f"p=1,informed=1,{options}".strip(","))
    generator = random.Random(seed)
    orders = [generator.sample(range(5), 5) for _ in range(5)]
    for leaf, order in enumerate(orders):
        for host, output in enumerate(order):
            fabric.flows.begin(5 * leaf + host, 5 * output + leaf)
    excesses = []
    for _ in range(400):
        fabric.simulator.run_for(0.0025)
        excesses.append(sum(max(0, flows - 1) for flows in fabric.flows.loads().values()))
    assert excesses[0] > 0
    assert excesses == sorted(excesses, reverse=True)
    assert excesses[-1] == 0
