from collections import Counter

import numpy as np
import pytest

from weft.topologies.low_diameter.random_graphs import SplitMix64


def test_the_published_numbers():
    """The first outputs of the reference implementation for the seed 1234567."""
    random = SplitMix64(1234567)
    assert [random.bits() for _ in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_all_orders_are_about_as_likely():
    random, counts = SplitMix64(0), Counter()
    for _ in range(6000):
        items = [0, 1, 2]
        random.shuffle(items)
        counts[tuple(items)] += 1
    assert len(counts) == 6
    assert all(850 < count < 1150 for count in counts.values())


@pytest.mark.parametrize("limit", [1, 2, 3, 10, (1 << 63) + 1])
def test_below(limit):
    random = SplitMix64(5)
    assert all(0 <= random.below(limit) < limit for _ in range(200))


@pytest.mark.parametrize("limits", [[7, 1, 5, 1 << 62], [(1 << 63) + 1] * 20, []])
def test_many_draws_are_those_of_single_ones(limits):
    """Every second draw below (1 << 63) + 1 is refused and repeated."""
    one, many = SplitMix64(3), SplitMix64(3)
    expected = [one.below(limit) for limit in limits]
    assert many.draws(np.array(limits, dtype=np.uint64)).tolist() == expected
    assert many.bits() == one.bits()
