"""Confidence intervals cover the mean as often as they say, and narrow with the sample."""

from __future__ import annotations

import math

import numpy as np
import pytest

from weft.experiments.report import statistics


def test_student_s_interval_covers_the_mean_in_95_of_100_samples() -> None:
    assert statistics.mean_and_half_width([3.0]) == (3.0, 0.0)
    mean, half = statistics.mean_and_half_width([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (mean, half) == (3.0, pytest.approx(2.776 * (2.5**0.5) / 5**0.5))
    samples = np.random.default_rng(2).normal(size=(4000, 5)).tolist()
    intervals = [statistics.mean_and_half_width(sample) for sample in samples]
    covered = [abs(centre) < width for centre, width in intervals]
    assert 0.93 < np.mean(covered) < 0.97


@pytest.mark.parametrize("size", range(2, 17))
def test_the_interval_of_a_sample_holds_95_percent_of_student_s_distribution(size) -> None:
    """The density is integrated; samples of more than 16 values use its quantile for 16."""
    sample = np.array([1.0, 3.0] * 20)[:size]
    error = sample.std(ddof=1) / size**0.5
    quantile = statistics.mean_and_half_width(sample.tolist())[1] / error
    freedom, points = size - 1, np.linspace(-quantile, quantile, 200_001)
    density = (1 + points**2 / freedom) ** (-(freedom + 1) / 2)
    density *= (
        math.gamma((freedom + 1) / 2) / math.gamma(freedom / 2) / math.sqrt(freedom * math.pi)
    )
    probability = np.sum((density[1:] + density[:-1]) / 2 * np.diff(points))
    assert probability == pytest.approx(0.95, abs=1e-4)
    longer = np.array([1.0, 3.0] * 20)
    assert statistics.mean_and_half_width(longer.tolist())[1] == pytest.approx(
        2.131 * longer.std(ddof=1) / 40**0.5
    )


def test_the_standard_error_of_a_whole_population_is_zero() -> None:
    assert statistics.mean_and_error([1.0, 3.0]) == (2.0, pytest.approx(1.0))
    assert statistics.mean_and_error([1.0, 3.0], population=2) == (2.0, 0.0)
    assert statistics.mean_and_error([3.0]) == (3.0, 0.0)


def test_the_normal_interval_is_in_the_unit() -> None:
    values = np.array([1, 2, 3, 4, 5])
    expected = 1.96 * (2.5**0.5) / 5**0.5
    assert statistics.normal_half_width(values, 1) == pytest.approx(expected)
    assert statistics.normal_half_width(values, 4) == pytest.approx(expected / 4)
    assert statistics.normal_half_width(values[:1], 4) == 0
