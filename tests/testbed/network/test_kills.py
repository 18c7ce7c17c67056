"""Nothing is left of a weft command that is killed at a random moment, or short of open files.

`pytest tests/testbed/network/test_kills.py --times 20` draws 20 moments of each kind.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.testbed.network.kills import (
    KINDS,
    SEEDS,
    few_files_once,
    kill_once,
    sweep_killed,
)

pytestmark = [pytest.mark.kernel, pytest.mark.real_clock("a virtual one has no random moments")]
QUICK = ("up", "run", "view")


@pytest.fixture
def rng() -> random.Random:
    """Draws of this run; a failing test shows the seed."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind in QUICK else pytest.mark.slow) for kind in KINDS]
)
def test_a_tool_that_is_killed_leaves_nothing_after_weft_clean(
    kind: str, rng: random.Random, tmp_path: Path, times: int | None
) -> None:
    assert [thing for _ in range(times or 1) for thing in kill_once(rng, tmp_path, kind)] == []


def test_with_few_open_files_a_network_comes_up_or_is_refused_in_one_line(
    rng: random.Random, times: int | None
) -> None:
    assert [thing for _ in range(times or 2) for thing in few_files_once(rng)] == []


@pytest.mark.slow
def test_a_sweep_that_is_killed_loses_and_doubles_no_run(
    rng: random.Random, tmp_path: Path, times: int | None
) -> None:
    for number in range(times or 1):
        assert sweep_killed(rng, tmp_path / f"sweep{number}") == [*range(SEEDS)]
