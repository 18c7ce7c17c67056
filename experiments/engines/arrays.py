"""Types of arrays for the engines and for the models of papers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Array = Any  # of integers: what the pure functions take as a sequence


def int_zeros(*shape: int) -> Ints:
    """Return an array of zeros; a function `zeros` would replace np.zeros() in compiled code."""
    return np.zeros(shape, np.int64)
