import random

import pytest

from bench.kills import kill_once


@pytest.mark.kernel
def test_sigkill_at_any_moment_leaves_nothing_that_clean_does_not_find(tmp_path):
    rng = random.Random(7)
    assert [kill_once(rng, tmp_path) for _ in range(5)] == [[]] * 5
