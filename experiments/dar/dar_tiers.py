"""The persistent walk on fat-trees of three tiers, level by level.  Beyond DAR's paper.

FT(3,d) is a Clos network of Clos networks.  On the first level, 2d^2 edge switches choose one of d
planes for each flow: CLOS(d, 2d^2, d).  A plane has an aggregation switch of each of the 2d pods
and d cores.  On the second level, its aggregation switches choose a core: CLOS(d, 2d, d).

Loads of the first level do not depend on cores, so the lemma holds there.  Once it has settled, a
plane has at most one flow of an edge switch, so at most d of a pod, and the lemma holds in each
plane.  Here the second level begins then.  Flows within an edge switch take a plane, too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.daemons.core.compiled import compiled
from weft.daemons.dar.iteration import (
    COUNTERS,
    GROWTHS,
    MOVES,
    PERSISTENT,
    REQUESTS,
    SWAPS,
    ClosFlows,
    IterationRules,
    converge,
    invert,
    place,
)
from weft.experiments.dar.settings import generator
from weft.experiments.dar.simulation import network, standard_error
from weft.experiments.engines.arrays import Ints, int_zeros
from weft.experiments.report.panels import Curves
from weft.experiments.runner.definition import Experiment, Result, Row, Run
from weft.experiments.runner.parameters import Integer, Word

MOST_ITERATIONS = 10**6


class LevelOutcome(NamedTuple):
    """Iterations until no link of the level is bad, and the sums of iteration.converge()."""

    iterations: int
    counts: Ints


def settle(net: ClosFlows, destination: Ints, rules: IterationRules, state: Ints) -> LevelOutcome:
    """Place flows to `destination` on `net`, and move them until no link is bad.

    Raises:
        RuntimeError: MOST_ITERATIONS are not enough, so there is no settled state to measure.
    """
    net.destination[:] = destination  # type: ignore[index,assignment]
    counts = int_zeros(COUNTERS)
    compiled(invert)(net)
    compiled(place)(net, rules, state)
    iterations = compiled(converge)(net, rules, MOST_ITERATIONS, counts, state)
    if iterations < 0:
        raise RuntimeError(f"flows have not settled after {MOST_ITERATIONS:,} iterations")
    return LevelOutcome(iterations, counts)


def permutation(d: int, traffic: str, rng: np.random.Generator) -> Ints:
    """Return the destination of each of the 2d^3 hosts.

    traffic: `random`, or `worst`: flows of an edge switch go to different switches of different
        pods, in random order.
    """
    edges = 2 * d * d
    if traffic == "random":
        return rng.permutation(edges * d)
    edge, flow = np.divmod(np.arange(edges * d), d)
    destination = ((edge + flow * (d + 1)) % edges * d + flow).reshape(edges, d)
    return rng.permuted(destination, axis=1).ravel()


def planes(d: int, first: ClosFlows) -> Ints:
    """Return the edge switch that each edge switch sends to in each plane, shape (d, 2d^2).

    first: the settled edge level, in which each edge switch has one flow in each plane.
    """
    destinations = np.empty((d, 2 * d * d), np.int64)
    edges = np.arange(len(first.destination)) // d
    destinations[np.asarray(first.spine), edges] = np.asarray(first.destination) // d
    return destinations


def levels(run: Run, rng: np.random.Generator) -> tuple[LevelOutcome, LevelOutcome]:
    """Return the outcome of a permutation on the first level, and of all planes together."""
    d, rules = run.integer("d"), PERSISTENT
    first, second = network(d, 2 * d * d, d), network(d, 2 * d, d)
    state = rng.integers(1, 1 << 32, 4)
    edge_level = settle(first, permutation(d, run.text("traffic"), rng), rules, state)
    outcomes = [
        settle(second, destination, rules._replace(folded=1), state)
        for destination in planes(d, first)
    ]
    slowest = max(outcome.iterations for outcome in outcomes)
    return edge_level, LevelOutcome(slowest, np.sum([outcome.counts for outcome in outcomes], 0))


def measure(run: Run) -> Result:
    """Return iterations on each level, over permutations."""
    rng, permutations = generator(run), run.integer("permutations")
    flows = 2 * run.integer("d") ** 3 * permutations
    figures: Row = {}
    growths = requests = 0
    drawn = [levels(run, rng) for _ in range(permutations)]
    for name, outcomes in zip(("edge", "plane"), zip(*drawn, strict=True), strict=True):
        iterations = np.array([outcome.iterations for outcome in outcomes])
        counts = np.sum([outcome.counts for outcome in outcomes], 0)
        figures |= {
            f"{name}_iterations": iterations.mean(),
            f"{name}_standard_error_iterations": standard_error(iterations),
            f"{name}_moves_per_flow": (counts[MOVES] + counts[SWAPS]) / flows,
        }
        growths += int(counts[GROWTHS])
        requests += int(counts[REQUESTS])
    return Result({**figures, "requests_per_flow": requests / flows, "excess_growths": growths})


EXPERIMENT = Experiment(
    name="dar_tiers",
    question="Does the persistent walk settle on a fat-tree of three tiers at the full rate?",
    source="DAR, beyond the paper",
    engines=("graph",),
    axes={
        "d": Integer("half the ports of a switch", unit="ports", least=2, most=16).over(
            2, 4, 6, 8, 12
        ),
        "traffic": Word(
            "permutations: random ones, or flows of a switch to different pods",
            words=("random", "worst"),
        ).over("random", "worst"),
        "permutations": Integer(
            "permutations measured", unit="permutations", least=2, most=100_000
        ).over(200),
    },
    columns={
        "edge_iterations": (
            "iterations until no link of edge switches is bad, mean over permutations"
        ),
        "edge_standard_error_iterations": "its standard error",
        "plane_iterations": "the same for cores, from then on, in the slowest plane",
        "plane_standard_error_iterations": "its standard error",
        "edge_moves_per_flow": "moves and swaps of a flow to another plane",
        "plane_moves_per_flow": "moves and swaps of a flow to another core",
        "requests_per_flow": "requests that outputs of both levels sent",
        "excess_growths": "iterations in which the excess of a level grew",
    },
    version=2,
    seeds=3,
    measure=measure,
    plot=Curves(
        columns={
            "edge_iterations": "(a) iterations, planes of flows",
            "plane_iterations": "(b) iterations, cores of flows",
        },
        x="d",
        series="traffic",
        log=("d", "edge_iterations", "plane_iterations"),
    ),
    takes_s=60,
)
