"""Means of samples and their errors: standard errors and 95 % confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
