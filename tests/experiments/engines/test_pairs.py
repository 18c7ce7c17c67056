from collections import Counter

import numpy as np
import pytest

from weft.daemons.core.compiled import compiled
from weft.experiments.engines.pairs import below, pair, pairs, word
from weft.topologies.low_diameter.random_graphs import GAMMA, SplitMix64


def draw_pairs(spec, servers, seed=0):
    traffic_pairs = pairs(spec, servers, np.random.default_rng(seed))
    with np.errstate(over="ignore"):
        return [pair(traffic_pairs, index) for index in range(traffic_pairs.total)]


def test_words_are_those_of_splitmix64():
    # the generator's published test vector: the words that follow the seed 0
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    with np.errstate(over="ignore"):
        assert [int(word(np.uint64(0), number)) for number in range(1, 5)] == expected
    assert [int(compiled(word)(np.uint64(0), number)) for number in range(1, 5)] == expected


def test_numbers_below_an_end_are_even():
    seen = Counter(compiled(below)(np.uint64(9), number, 7) for number in range(7000))
    assert sorted(seen) == list(range(7))
    assert all(850 < count < 1150 for count in seen.values())  # 5 standard deviations of 29.3


def test_uniform_pairs_differ_cover_everything_and_follow_the_seed():
    drawn_pairs = draw_pairs("uniform:flows=3000", 10)
    assert all(src != dst for src, dst in drawn_pairs)
    assert len(set(drawn_pairs)) == 90
    assert drawn_pairs == draw_pairs("uniform:flows=3000", 10)
    assert drawn_pairs != draw_pairs("uniform:flows=3000", 10, seed=1)
    assert drawn_pairs[:100] == draw_pairs("uniform:flows=100", 10)


def test_every_uniform_pair_takes_two_words_of_the_generator_that_no_other_takes():
    """By the generator that draws networks, from the word before the first on."""
    traffic_pairs = pairs("uniform:flows=50", 10, np.random.default_rng(0))
    stream = SplitMix64(int(traffic_pairs.key) - GAMMA)
    for src, dst in draw_pairs("uniform:flows=50", 10):
        fractions = [(stream.bits() >> 11) / 2**53 for _ in range(2)]
        others = [server for server in range(10) if server != src]
        assert (src, dst) == (int(fractions[0] * 10), others[int(fractions[1] * 9)])


def test_all_to_all_is_every_ordered_pair_once():
    assert sorted(draw_pairs("all-to-all", 9)) == [
        (src, dst) for src in range(9) for dst in range(9) if src != dst
    ]


def test_one_to_all_reaches_everybody_from_one_server():
    drawn_pairs = draw_pairs("one-to-all", 9)
    assert {src for src, _ in drawn_pairs} == {drawn_pairs[0][0]}
    assert sorted(dst for _, dst in drawn_pairs) == [
        server for server in range(9) if server != drawn_pairs[0][0]
    ]


def test_in_a_permutation_everybody_sends_once_and_receives_once():
    drawn_pairs = draw_pairs("permutation", 20)
    assert (
        sorted(src for src, _ in drawn_pairs)
        == sorted(dst for _, dst in drawn_pairs)
        == list(range(20))
    )
    assert all(src != dst for src, dst in drawn_pairs)


@pytest.mark.parametrize(
    ("servers", "group", "sizes"), [(12, 4, [4, 4, 4]), (14, 4, [4, 4, 4, 2]), (13, 4, [4, 4, 4])]
)
def test_groups_talk_all_to_all_among_themselves(servers, group, sizes):
    drawn_pairs = draw_pairs(f"many-all-to-all:group={group}", servers)
    heard: dict[int, set[int]] = {}
    for src, dst in drawn_pairs:
        heard.setdefault(src, {src}).add(dst)
    groups = {frozenset(members) for members in heard.values()}
    assert sorted((len(members) for members in groups), reverse=True) == sizes
    assert len(set(drawn_pairs)) == len(drawn_pairs) == sum(size * (size - 1) for size in sizes)


@pytest.mark.parametrize(
    "spec",
    ["uniform:flows=50", "all-to-all", "one-to-all", "permutation", "many-all-to-all:group=3"],
)
def test_machine_code_gives_the_same_pairs(spec):
    traffic_pairs = pairs(spec, 11, np.random.default_rng(0))
    assert [
        compiled(pair)(traffic_pairs, index) for index in range(traffic_pairs.total)
    ] == draw_pairs(spec, 11)


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ("unifrom:flows=3", "did you mean uniform"),
        ("uniform", "flows is missing, for example uniform:flows=100"),
        ("uniform:flows=0", "flows must be at least 1"),
        ("one-to-all:flows=3", "no parameter flows"),
        ("many-all-to-all:group=12", "group must be at most 11"),
        ("many-all-to-all:group=1", "group must be at least 2"),
    ],
)
def test_wrong_traffic_is_refused(spec, what):
    with pytest.raises(ValueError, match=what):
        pairs(spec, 11, np.random.default_rng(0))
