"""The tool killed at random moments, and given few open files: nothing of its run is left (more:
bench/kills.py)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bench.kills import few_files_once, kill_once

pytestmark = [pytest.mark.kernel, pytest.mark.real_clock("a virtual one has no random moments")]


@pytest.fixture
def rng() -> random.Random:
    """Draws of this run; a failing test shows the seed."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)


@pytest.mark.parametrize("kind", ["up", "run", "view"])
def test_a_tool_that_is_killed_leaves_nothing_after_weft_clean(
    kind: str, rng: random.Random, tmp_path: Path
) -> None:
    assert kill_once(rng, tmp_path, kind) == []


def test_with_few_open_files_a_network_comes_up_or_is_refused_in_one_line(
    rng: random.Random,
) -> None:
    assert [thing for _ in range(2) for thing in few_files_once(rng)] == []
