"""DAR's iteration on many permutations (figure 9): daemons/dar/iteration.py as machine code."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from weft.daemons.core.compiled import allocates_nothing, compiled
from weft.daemons.dar.iteration import (
    COUNTERS,
    ClosFlows,
    IterationRules,
    MutableIntSequence,
    converge,
    draw,
    invert,
    place,
)
from weft.daemons.routing.selection import below
from weft.experiments.engines.arrays import Ints, int_zeros

WORST, ANY, GIVEN, PAIRS = range(4)
TRAFFIC = {"worst": WORST, "random": ANY, "pairs": PAIRS}


class PermutationOutcome(NamedTuple):
    """Outcome of permutations, one after the other.

    iterations: shape (permutations,), -1 for a permutation that was given up.
    counts: shape (permutations, COUNTERS), see iteration.converge().
    """

    iterations: Ints
    counts: Ints


def network(n: int, r: int, m: int) -> ClosFlows:
    """CLOS(n,r,m) before any flow is placed: host i sends to itself."""
    flows = np.arange(n * r)
    sizes = (n * r, r * m, r * m, (m + 1) * r, r * m, n * r)
    return ClosFlows(n, r, m, flows, flows.copy(), *(int_zeros(size) for size in sizes))


@allocates_nothing
def shuffle(items: MutableIntSequence, first: int, count: int, state: MutableIntSequence) -> None:
    """Put items[first:first+count] in random order."""
    for remaining in range(count, 1, -1):
        place, last = first + below(draw(state), remaining), first + remaining - 1
        items[place], items[last] = items[last], items[place]


@allocates_nothing
def permute(net: ClosFlows, traffic: int, state: MutableIntSequence) -> None:
    """Draw `destination`, and `source` with it.

    ANY: a uniform permutation.  WORST (section 5): the n flows of an input leaf go to n different
    output leaves, or as many as there are; leaf i's to i, i+1, ... (mod r), in random order.
    PAIRS: the same for pairs of flows of a leaf, which go to the same host, n being even.  GIVEN:
    as it is.
    """
    n, r = net.n, net.r
    if traffic == ANY:
        shuffle(net.destination, 0, n * r, state)
    if traffic in (WORST, PAIRS):
        size = 2 if traffic == PAIRS else 1
        for flow in range(n * r):
            # Flow i n + k goes to leaf i + k, the k-th host of which no other flow takes; of pairs,
            # only every second k.
            k = flow % n // size
            net.destination[flow] = (flow // n + k) % r * n + k * size
        for leaf in range(r):
            shuffle(net.destination, leaf * n, n, state)
    invert(net)


def repeat(
    net: ClosFlows,
    rules: IterationRules,
    traffic: int,
    most: int,
    outcome: PermutationOutcome,
    state: Ints,
) -> None:
    """Fill `outcome` with new permutations of at most `most` iterations each."""
    for entry in range(len(outcome.iterations)):
        permute(net, traffic, state)
        place(net, rules, state)
        outcome.iterations[entry] = converge(net, rules, most, outcome.counts[entry], state)


def standard_error(iterations: Ints) -> float:
    """Return the standard error of the mean of at least two permutations."""
    return float(iterations.std(ddof=1) / np.sqrt(len(iterations)))


def simulate(
    net: ClosFlows,
    rules: IterationRules,
    traffic: int,
    batch: int,
    rng: Generator,
    *,
    most: int,
    error_fraction: float = math.inf,
) -> PermutationOutcome:
    """Return the outcome of batches of permutations on `net`.

    Batches follow until the standard error of the mean is at most `error_fraction` of it, or a
    permutation has not settled after `most` iterations.
    """
    state = rng.integers(1, 1 << 32, 4)
    outcomes = PermutationOutcome(int_zeros(0), int_zeros(0, COUNTERS))
    while True:
        outcome = PermutationOutcome(int_zeros(batch), int_zeros(batch, COUNTERS))
        compiled(repeat)(net, rules, traffic, most, outcome, state)
        outcomes = PermutationOutcome(*map(np.concatenate, zip(outcomes, outcome, strict=True)))
        iterations = outcomes.iterations
        if (
            math.isinf(error_fraction)
            or (iterations < 0).any()
            or standard_error(iterations) <= error_fraction * iterations.mean()
        ):
            return outcomes
