"""Types of arrays for the engines and for the models of papers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Array = Any  # of integers: what the pure functions take as a sequence


def zeros(*shape: int) -> Ints:
    """Return an array of zeros; machine code calls np.zeros() itself."""
    return np.zeros(shape, np.int64)
