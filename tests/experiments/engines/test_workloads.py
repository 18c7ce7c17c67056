"""Traffic patterns, flow sizes and arrivals."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from weft.experiments.engines import workloads
from weft.experiments.engines.workloads import SIZES


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("spec", "each_sends", "each_receives"),
    [
        ("permutation", 1, 1),
        ("k-permutation:k=3", 3, 3),
        ("stride:step=5", 1, 1),
        ("all-to-all", 15, 15),
    ],
)
def test_every_host_sends_and_receives_alike(
    spec: str, each_sends: int, each_receives: int
) -> None:
    pairs = workloads.pairs(spec, 16, rng())
    assert set(Counter(src for src, _ in pairs).values()) == {each_sends}
    assert set(Counter(dst for _, dst in pairs).values()) == {each_receives}
    assert all(src != dst for src, dst in pairs)


@pytest.mark.parametrize(("hosts", "group"), [(8, 4), (16, 8), (16, 2), (6, 1)])
def test_a_cross_permutation_leaves_every_group(hosts: int, group: int) -> None:
    for seed in range(20):
        pairs = workloads.pairs(f"cross:group={group}", hosts, rng(seed))
        assert [src for src, _ in pairs] == list(range(hosts))
        assert sorted(dst for _, dst in pairs) == list(range(hosts))
        assert all(src // group != dst // group for src, dst in pairs)


def test_an_incast_has_different_senders_and_one_receiver() -> None:
    pairs = workloads.pairs("incast:senders=7", 8, rng())
    assert len({src for src, _ in pairs}) == 7
    (dst,) = {dst for _, dst in pairs}
    assert dst not in {src for src, _ in pairs}


def test_a_seed_gives_the_same_traffic_again() -> None:
    for spec in ("permutation", "random:count=40", "incast:senders=3"):
        assert workloads.pairs(spec, 16, rng(5)) == workloads.pairs(spec, 16, rng(5))
        assert workloads.pairs(spec, 16, rng(5)) != workloads.pairs(spec, 16, rng(6))


def test_derangements_are_equally_likely() -> None:
    counts = Counter(map(tuple, workloads.derangements(rng(), 4, 9000).tolist()))
    assert len(counts) == 9
    assert all(abs(count - 1000) < 150 for count in counts.values())


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("permutaton", "did you mean permutation?"),
        ("stride", "stride: step is missing, for example stride:step=4"),
        ("stride:step=16", "step must be at most 15"),
        ("permutation:k=2", "permutation: no parameter k"),
        ("incast:senders=16", "senders must be at most 15"),
        ("cross:group=16", "16 hosts are not two or more groups of 16"),
    ],
)
def test_what_is_wrong_with_a_pattern_is_said(spec: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]*$") as error:
        workloads.pairs(spec, 16, rng())
    assert said in str(error.value)


@pytest.mark.parametrize("spec", [*SIZES, "web-search:most_bytes=1000000", "fixed:bytes=70000"])
def test_sizes_have_the_mean_and_the_median_of_their_distribution(spec: str) -> None:
    distribution = workloads.sizes(spec)
    drawn = distribution.draw(rng(), 400_000)
    assert drawn.mean() == pytest.approx(distribution.mean_bytes, rel=0.1)
    assert np.median(drawn) == pytest.approx(
        np.interp(0.5, distribution.fraction, distribution.bytes_), rel=0.05
    )
    assert drawn.min() >= 1
    assert drawn.max() <= distribution.bytes_[-1]


def test_published_means_come_out() -> None:
    """1.6 MB for web search and 7.4 MB for data mining, as papers that use the tables quote
    them."""
    assert SIZES["web-search"].mean_bytes == pytest.approx(1.7e6, rel=0.07)
    assert SIZES["data-mining"].mean_bytes == pytest.approx(7.4e6, rel=0.05)


def test_poisson_arrivals_bring_the_load_that_was_asked_for() -> None:
    distribution = workloads.sizes("fixed:bytes=10000")
    flows = list(
        workloads.poisson(
            rng(),
            8,
            size_distribution=distribution,
            load_fraction=0.5,
            rate_bps=8e6,
            duration_s=100,
        )
    )
    assert 8 * sum(flow.size_bytes or 0 for flow in flows) / (8 * 8e6 * 100) == pytest.approx(
        0.5, rel=0.05
    )
    gaps = np.diff([flow.at_s for flow in flows])
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)
    assert all(flow.src != flow.dst and 0 <= flow.at_s < 100 for flow in flows)


def test_uniform_traffic_reaches_every_other_host_about_as_often() -> None:
    counts = Counter(
        pair for seed in range(2000) for pair in workloads.pairs("uniform", 4, rng(seed))
    )
    assert len(counts) == 12
    assert all(src != dst for src, dst in counts)
    assert all(570 < count < 770 for count in counts.values())


def test_off_diagonals_and_stencils_are_offsets() -> None:
    assert workloads.pairs("off-diagonal:c=3", 5, rng()) == [(0, 3), (1, 4), (2, 0), (3, 1), (4, 2)]
    counts = Counter(
        (dst - src) % 100 for src, dst in workloads.pairs("stencil:offset=42", 100, rng())
    )
    assert counts == {1: 100, 99: 100, 42: 100, 58: 100}


@pytest.mark.parametrize("hosts", [8, 12, 100])
def test_a_shuffle_rotates_bits(hosts: int) -> None:
    width = len(format(hosts - 1, "b"))
    expected = {}
    for src in range(hosts):
        bits = format(src, f"0{width}b")
        expected[src] = int(bits[1:] + bits[0], 2) % hosts
    assert workloads.pairs("shuffle", hosts, rng()) == [
        (src, dst) for src, dst in expected.items() if src != dst
    ]


def test_a_random_mapping_renames_hosts() -> None:
    drawn_pairs = workloads.pairs("off-diagonal:c=1", 50, rng())
    hosts = workloads.mapped(rng(), 50, drawn_pairs)
    assert hosts != drawn_pairs
    assert sorted(src for src, _ in hosts) == sorted(dst for _, dst in hosts) == list(range(50))
    place = [src for src, _ in hosts]
    assert hosts == [(place[src], place[dst]) for src, dst in drawn_pairs]
