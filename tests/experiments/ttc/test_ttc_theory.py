"""The limit of many queues: equation (9), its fixed point, its tail."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.ttc import ttc_theory

CASES = [(load, delta) for load in (0.5, 0.9) for delta in (0, 1, 2, 3)]


def test_two_choices_have_the_known_fixed_point() -> None:
    for load in (0.3, 0.7, 0.95):
        s = ttc_theory.fixed_point(load, 0)
        assert np.allclose(s, load ** (2.0 ** np.arange(len(s)) - 1), rtol=1e-9, atol=0)


@pytest.mark.parametrize(("load", "delta"), CASES)
def test_nothing_changes_at_the_fixed_point(load: float, delta: int) -> None:
    s = ttc_theory.fixed_point(load, delta)
    assert np.abs(ttc_theory.derivative(s, load, delta)).max() < 1e-12
    assert s[1] == pytest.approx(load)
    assert (np.diff(s) < 0).all()


@pytest.mark.parametrize(("load", "delta"), CASES)
def test_the_equation_leads_from_empty_queues_to_the_fixed_point(load: float, delta: int) -> None:
    s = ttc_theory.fixed_point(load, delta)
    empty = np.zeros(len(s) + 20)
    empty[0] = 1
    after = ttc_theory.integrate(empty, load, delta, duration=25 / (1 - load))
    assert np.abs(after[: len(s)] - s).max() < 1e-5


def test_the_derivative_is_that_of_the_definition() -> None:
    """Term by term, as in section 5.2: a packet joins a queue of i-1 as first choice, or as second."""
    s = np.array([1, 0.8, 0.5, 0.3, 0.05])
    p = [*(s[:-1] - s[1:]), s[-1]]
    for delta in (0, 1, 2):
        for i in range(1, len(s)):
            joins = 0.0
            for first, q in enumerate(p):
                for second, r in enumerate(p):
                    joined = second if first - second > delta else first
                    joins += q * r * (joined == i - 1)
            assert ttc_theory.derivative(s, 0.9, delta)[i] == pytest.approx(0.9 * joins - p[i])


def test_the_tail_is_doubly_exponential_with_the_exponent_of_the_threshold() -> None:
    for delta, z in enumerate([2.0, 1.618, 1.466, 1.380]):
        assert ttc_theory.growth(delta) == pytest.approx(z, abs=5e-4)
        exponents = np.log(-np.log(ttc_theory.fixed_point(0.8, delta)[2:]))
        assert np.exp(np.diff(exponents[-3:])).mean() == pytest.approx(z, rel=0.02)


def test_finitely_many_queues_come_near_the_limit() -> None:
    for delta in (0, 2):
        limit = ttc_theory.fixed_point(0.8, delta)
        finite = ttc_theory.simulate(500, 0.8, delta, warm_up=50, duration=200, rng=np.random.default_rng(1))
        assert np.abs(finite[: len(limit)] - limit).max() < 0.02
