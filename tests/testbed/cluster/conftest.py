"""Names of runs over several machines."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.testbed.cluster.machines_here import weft


@pytest.fixture
def name() -> Iterator[str]:
    """A run's name; the run is removed at the end."""
    chosen = f"t{random.SystemRandom().randrange(16**6):06x}"
    yield chosen
    weft("down", "--run", chosen, check=False)
    weft("clean", "--run", chosen, check=False)
