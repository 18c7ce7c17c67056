"""Means of samples and their errors: standard errors and 95 % confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import mean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

Statistic = Callable[[NDArray[np.float64]], float]

# Student's t: 97.5 % quantiles for 1, 2, ... degrees of freedom
T_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306),
    *(2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
)
NORMAL_975 = 1.96


def mean_and_half_width(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of `values` and half the width of its 95 % confidence interval.

    The interval is Student's t; samples beyond 16 values use the quantile of 16.  The half width
    of a single value is 0.
    """
    if len(values) < 2:
        return float(values[0]), 0.0
    quantile = T_975[min(len(values) - 1, len(T_975)) - 1]
    return mean(values), quantile * stdev(values) / math.sqrt(len(values))


def mean_and_error(values: Sequence[float], population: int | None = None) -> tuple[float, float]:
    """Return the mean of `values` and its standard error; 0 if they are the whole population."""
    if population == len(values) or len(values) < 2:
        return float(np.mean(values)), 0.0
    return float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(len(values)))


def normal_half_width(values: NDArray[Any], unit: float) -> float:
    """Return half the 95 % confidence interval of the mean of `values` / `unit` (normal)."""
    deviation = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return NORMAL_975 * deviation / unit / math.sqrt(len(values))


def bootstrap_interval(values: Sequence[float], *, resamples: int = 2000) -> tuple[float, float]:
    """Return the 95 % bootstrap interval (low, high) of the mean of `values`."""
    generator = np.random.default_rng(0)
    samples = generator.choice(np.asarray(values), size=(resamples, len(values)))
    return _percentile_interval(samples.mean(axis=1))


def nested_bootstrap_interval(
    runs: Sequence[NDArray[np.float64]], statistic: Statistic, *, resamples: int = 400
) -> tuple[float, float]:
    """Return the 95 % bootstrap interval (low, high) of `statistic` over the flows of all runs.

    Runs are resampled first, then flows within each run: flows of one run meet the same queues
    and are not independent.
    """
    generator = np.random.default_rng(0)
    statistics = []
    for _ in range(resamples):
        chosen_runs = generator.integers(len(runs), size=len(runs))
        flows = [generator.choice(runs[index], len(runs[index])) for index in chosen_runs]
        statistics.append(statistic(np.concatenate(flows)))
    return _percentile_interval(statistics)


def _percentile_interval(samples: Sequence[float] | NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.percentile(samples, [2.5, 97.5])
    return float(low), float(high)
