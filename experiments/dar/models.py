"""DAR's Markov models of the iterations until no link is bad (sections 3.1 to 3.3).

Section 3.3 is damaged in the text at hand: its constants are reconstructed here and at `half_rate`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from math import comb, factorial
from typing import NamedTuple

import numpy as np

from weft.experiments.engines.arrays import Floats

# bad flows per bad link, above which an induced move is taken to leave its link bad (table 1)
ENOUGH = 2.5
LONGEST = 1e12  # iterations; the linear system of a longer chain is singular in double precision


class LeafState(NamedTuple):
    """empty, good: links of an output leaf with no flow and with one; the others are bad."""

    empty: int
    good: int


class Transition(NamedTuple):
    """A change of State, and its probability."""

    empty: int
    good: int
    probability: float


def expected_steps(matrix: Floats, start: Floats) -> float:
    """Return the expected steps of a Markov chain until it is absorbed.

    Args:
        matrix: probabilities among the states that do not absorb.
        start: probabilities of these states at the beginning; the rest of 1 is absorbed at once.

    Raises:
        ValueError: the chain takes more than LONGEST steps.
    """
    times = np.linalg.solve(np.eye(len(matrix)) - matrix, np.ones(len(matrix)))
    steps = float(start @ times)
    if not 0 <= steps <= LONGEST:
        raise ValueError(
            f"the chain takes more than {LONGEST:g} iterations, which cannot be solved for"
        )
    return steps


def _moves(state: LeafState, m: int, *, bad: float, leaves_bad: bool) -> Iterator[Transition]:
    """Yield the moves of one flow to a uniform link (table 1).

    bad: probability that a bad flow moves instead of a good one.
    leaves_bad: True if the link that a bad flow leaves stays bad; else it becomes good.
    """
    empty, good = state
    others = m - empty - good
    if good and bad < 1:
        fine = (1 - bad) / m
        yield Transition(0, 0, fine * (empty + 1))
        yield Transition(1, -2, fine * (good - 1))
        yield Transition(1, -1, fine * others)
    if others and bad and leaves_bad:
        yield Transition(-1, 1, bad * empty / m)
        yield Transition(0, -1, bad * good / m)
        yield Transition(0, 0, bad * others / m)
    if others and bad and not leaves_bad:
        yield Transition(-1, 2, bad * empty / m)
        yield Transition(0, 0, bad * (good + 1) / m)
        yield Transition(0, 1, bad * (others - 1) / m)


def induced(state: LeafState, n: int, m: int) -> list[Transition]:
    """Return what an induced move, which has probability n / m, does to `state` (table 1)."""
    bad_links, bad_flows = m - state.empty - state.good, n - state.good
    moved = _moves(state, m, bad=bad_flows / n, leaves_bad=bad_flows > ENOUGH * bad_links)
    return [
        Transition(0, 0, 1 - n / m),
        *(step._replace(probability=step.probability * n / m) for step in moved),
    ]


def improvement(state: LeafState, n: int, m: int) -> list[Transition]:
    """Return what the move of a flow of the fullest link does to `state` (table 1).

    A state without bad links does not change.
    """
    bad_links, bad_flows = m - state.empty - state.good, n - state.good
    if not bad_links:
        return [Transition(0, 0, 1.0)]
    return list(_moves(state, m, bad=1.0, leaves_bad=bad_flows > 2 * bad_links))


def single_output_chain(n: int, m: int) -> tuple[list[LeafState], Floats]:
    """Return the states of an output leaf with bad links, and the probabilities among them.

    Model 3.1, p = 1.  An iteration is an induced move and then an improvement.  The state without
    bad links absorbs.
    """
    states = [
        LeafState(empty, good)
        for empty, good in product(range(m + 1), range(n + 1))
        if empty + good < m and n - good >= 2 * (m - empty - good)
    ]
    index = {state: number for number, state in enumerate(states)}
    matrix = np.zeros((len(states), len(states)))
    for state, row in index.items():
        for first in induced(state, n, m):
            middle = LeafState(state.empty + first.empty, state.good + first.good)
            for then in improvement(middle, n, m):
                after = LeafState(middle.empty + then.empty, middle.good + then.good)
                if after.empty + after.good < m and first.probability * then.probability:
                    matrix[row, index[after]] += first.probability * then.probability
    return states, matrix


@cache
def _crowded(flows: int, links: int) -> int:
    """Return the ways to put distinct flows on distinct links, two or more on each."""
    if links == 0 or flows < 2 * links:
        return int(links == 0 and flows == 0)
    return links * (_crowded(flows - 1, links) + (flows - 1) * _crowded(flows - 2, links - 1))


def random_start(state: LeafState, n: int, m: int) -> float:
    """Return the probability of `state` if each of n flows takes a random one of m links."""
    bad = m - state.empty - state.good
    choices = factorial(m) // (factorial(state.empty) * factorial(state.good) * factorial(bad))
    ways: int = (
        choices * (factorial(n) // factorial(n - state.good)) * _crowded(n - state.good, bad)
    )
    return float(ways / m**n)


def single_output(n: int, m: int) -> float:
    """Return the expected iterations of model 3.1, p = 1; flows begin on random links of all m."""
    states, matrix = single_output_chain(n, m)
    return expected_steps(matrix, np.array([random_start(state, n, m) for state in states]))


def _binomial(n: int, probability: float) -> Floats:
    """Return the probabilities of 0 .. n successes."""
    return np.array(
        [comb(n, k) * probability**k * (1 - probability) ** (n - k) for k in range(n + 1)]
    )


class LastStep(NamedTuple):
    """Last-step model (sections 3.2, 3.3): r output leaves, all bad at first.

    U is the number of bad output leaves.  B is the probability that a good leaf becomes bad, C that
    a bad one becomes good.

    spoil: B per U / r.
    improve: C_imp.
    help: C_ind per U / r.
    """

    spoil: float
    improve: float
    help: float

    def better(self, bad_fraction: float) -> float:
        """Return C = C_imp + C_ind - C_imp C_ind at U / r."""
        induced = bad_fraction * self.help
        return self.improve + induced - self.improve * induced

    def iterations(self, r: int) -> float:
        """Return the expected iterations for r output leaves.

        The 2^r states of the paper's chain are lumped on U, on which alone B and C depend.

        Raises:
            ValueError: the chain takes more than LONGEST iterations.
        """
        matrix = np.zeros((r, r))
        for bad in range(1, r + 1):
            still_bad = _binomial(bad, 1 - self.better(bad / r))
            spoilt = _binomial(r - bad, bad / r * self.spoil)
            matrix[bad - 1] = np.convolve(still_bad, spoilt)[1:]
        return expected_steps(matrix, np.eye(r)[r - 1])


def full_rate(n: int, m: int) -> LastStep:
    """Return the model of section 3.2, p = 1.

    B = U/r, C_imp = (m-n+1)/m, C_ind = U/r 2/n (m-n+1)/m.
    """
    improve = (m - n + 1) / m
    return LastStep(1.0, improve, 2 / n * improve)


def half_rate(n: int, m: int, *, weighted: bool = True) -> LastStep:
    """Return the model of section 3.3, p = 2, n >= 4, reconstructed.

    The worst good state has n/2 full links, the bad state next to it t' = n/2 - 2.  An induced move
    makes a good leaf bad with (n/2-1)/m, the paper's B_max before its last step, and a bad one good
    with 3/n (m-t')/m.

    weighted: a moved flow induces a move only if its new uplink is full, with P[Bin(n,1/m) >= 2],
        as the paper suggests; else each move induces one.
    """
    if n < 4:
        raise ValueError(f"the model of section 3.3 needs n >= 4, got {n}")
    full = n / 2 - 2
    swaps = 1 - float(_binomial(n, 1 / m)[:2].sum()) if weighted else 1.0
    return LastStep(swaps * (n / 2 - 1) / m, 1 - full / m, swaps * 3 / n * (m - full) / m)
