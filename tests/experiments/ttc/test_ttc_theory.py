"""The limit of many queues: equation (9), its fixed point, its tail."""

from __future__ import annotations

import numpy as np
import pytest

from weft.experiments.ttc import ttc_theory

CASES = [(load, delta) for load in (0.5, 0.9) for delta in (0, 1, 2, 3)]


def derivative(s: np.ndarray, load: float, delta: int) -> np.ndarray:
    """Return ds_i/dt for i = 0 .. len(s)-1 (equation 9); beyond the end s_i = 0."""
    i = np.arange(1, len(s))
    far = np.concatenate([s, np.zeros(delta + 1)])
    before, behind = s[np.maximum(i - 1 - delta, 0)], far[i + delta]
    change = load * (s[i - 1] - s[i]) * (before + behind) - (s[i] - far[i + 1])
    return np.concatenate([[0.0], change])


def test_two_choices_have_the_known_fixed_point() -> None:
    for load in (0.3, 0.7, 0.95):
        s = ttc_theory.fixed_point(load, 0)
        assert np.allclose(s, load ** (2.0 ** np.arange(len(s)) - 1), rtol=1e-9, atol=0)


@pytest.mark.parametrize(("load", "delta"), CASES)
def test_nothing_changes_at_the_fixed_point(load: float, delta: int) -> None:
    s = ttc_theory.fixed_point(load, delta)
    assert np.abs(derivative(s, load, delta)).max() < 1e-12
    assert s[1] == pytest.approx(load)
    assert (np.diff(s) < 0).all()


def test_the_derivative_is_that_of_the_definition() -> None:
    """Term by term, as in section 5.2: a packet joins a queue of i-1 as first choice, or as
    second."""
    s = np.array([1, 0.8, 0.5, 0.3, 0.05])
    p = [*(s[:-1] - s[1:]), s[-1]]
    for delta in (0, 1, 2):
        for i in range(1, len(s)):
            joins = 0.0
            for first, q in enumerate(p):
                for second, r in enumerate(p):
                    joined = second if first - second > delta else first
                    joins += q * r * (joined == i - 1)
            assert derivative(s, 0.9, delta)[i] == pytest.approx(0.9 * joins - p[i])


def test_the_tail_is_doubly_exponential_with_the_exponent_of_the_threshold() -> None:
    for delta, z in enumerate([2.0, 1.618, 1.466, 1.380]):
        assert ttc_theory.growth(delta) == pytest.approx(z, abs=5e-4)
        exponents = np.log(-np.log(ttc_theory.fixed_point(0.8, delta)[2:]))
        assert np.exp(np.diff(exponents[-3:])).mean() == pytest.approx(z, rel=0.02)


def test_finitely_many_queues_come_near_the_limit() -> None:
    for delta in (0, 2):
        limit = ttc_theory.fixed_point(0.8, delta)
        finite = ttc_theory.simulate(
            500, 0.8, delta, warm_up=45_000, watched=180_000, rng=np.random.default_rng(1)
        )
        assert np.abs(finite[: len(limit)] - limit).max() < 0.02


def naive_queues(
    queues: int, load: float, delta: int, draws: np.ndarray, fractions: int
) -> np.ndarray:
    """Queues with at least i packets, summed over the states after each event, counted anew after
    each."""
    length, shares = [0] * queues, np.zeros(fractions)
    for kind, first, second in draws.tolist():
        queue = first * queues >> 32
        if kind < round(load / (1 + load) * (1 << 32)):
            other = (queue + 1 + (second * (queues - 1) >> 32)) % queues
            queue = other if length[queue] - length[other] > delta else queue
            length[queue] += 1
        else:
            length[queue] = max(0, length[queue] - 1)
        shares += [sum(packets >= i for packets in length) for i in range(fractions)]
    return shares


@pytest.mark.parametrize("delta", [0, 2, 50])
def test_fractions_are_those_after_each_event(delta: int) -> None:
    """With 40 queues at load 0.95, of which some grow longer than the array (delta = 50 never
    redirects)."""
    draws = np.random.default_rng(4).integers(1 << 32, size=(3000, 3))
    length, shares = np.zeros(40, np.int64), np.zeros(5)
    arrival = round(0.95 / 1.95 * (1 << 32))
    for part in (draws[:1000], draws[1000:]):
        ttc_theory.supermarket(length, delta, arrival, part, shares)
    assert length.max() > len(shares)
    assert shares.tolist() == naive_queues(40, 0.95, delta, draws, 5).tolist()


@pytest.mark.parametrize("load", [1e-6, 0.01, 0.5, 0.999, 0.99999])
@pytest.mark.parametrize("delta", [0, 3, 40])
def test_the_fixed_point_is_found_for_every_load(load: float, delta: int) -> None:
    s = ttc_theory.fixed_point(load, delta)
    assert s[1] == pytest.approx(load, rel=1e-12)
    assert (np.diff(s) <= 0).all()
    assert s[-1] > ttc_theory.SMALLEST
    assert derivative(s, load, delta)[1:] == pytest.approx(0, abs=1e-13)


@pytest.mark.parametrize(("load", "queues"), [("0.000001", "50"), ("0.999", "50"), ("0.02", "2")])
@pytest.mark.parametrize("delta", ["0", "3", "100"])
@pytest.mark.slow
def test_every_allowed_load_is_measured(load: str, queues: str, delta: str) -> None:
    parameters = {"load_fraction": load, "queues": queues, "delta": delta}
    (run,) = ttc_theory.EXPERIMENT.runs(parameters, seeds=1)
    figures = ttc_theory.measure(run).figures
    assert figures["at_least"][1] == pytest.approx(float(load))
    assert 0 <= figures["worst_error_fraction"] <= 1
    assert np.isfinite(figures["mean_queue_packets"])


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"load_fraction": "0"}, "load_fraction must lie in 1e-09 .. 0.9999, got '0'"),
        ({"load_fraction": "1"}, "0.9999, got '1'"),
        ({"load_fraction": "nan"}, "must be a number, got 'nan'"),
        ({"delta": "101"}, "delta must be at most 100"),
        ({"queues": "1"}, "queues must be at least 2"),
        ({"load_fraction": "0.99", "queues": "1000000"}, "take at most 9"),
        ({"load_fraction": "0.9999", "queues": "20000"}, "or a lower load"),
    ],
)
def test_what_has_no_answer_or_takes_too_long_is_refused(
    parameters: dict[str, str], said: str
) -> None:
    with pytest.raises(ValueError, match=r"^ttc_theory: [^\n]*$") as error:
        ttc_theory.EXPERIMENT.runs(parameters)
    assert said in str(error.value)
