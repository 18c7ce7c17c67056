import math
import statistics

import pytest
import quick
from hypothesis import given
from hypothesis import strategies as st

from weft.experiments.report import figures
from weft.experiments.report.comparison import draw, figures_of, pairs, ratio, ratios

E = quick.EXPERIMENT


def row(scheme, size, seed, area, engine="graph"):
    return {
        "scheme": scheme,
        "size": size,
        "load_fraction": 0.5,
        "area_bytes": area,
        "delays_us": [1.0],
        "right": True,
        "name": "x",
        "seed": seed,
        "engine": engine,
        "run": f"{scheme}{size}{seed}{engine}",
    }


def test_runs_are_paired_that_agree_in_all_but_what_is_compared():
    a = [row("dr", 1, 0, 2), row("dr", 1, 1, 4), row("dr", 2, 0, 8)]
    b = [row("bfs", 2, 0, 16), row("bfs", 1, 1, 4), row("bfs", 1, 0, 6, engine="kernel")]
    matches = pairs(E, a, b, {"scheme"})
    names = [(first["run"], other["run"]) for first, other in matches]
    assert names == [("dr11graph", "bfs11graph"), ("dr20graph", "bfs20graph")]
    assert pairs(E, a, b, set()) == []
    assert len(pairs(E, a, b, {"scheme", "engine"})) == 3


def test_figures_are_the_columns_of_numbers_only():
    assert figures_of(E, [row("dr", 1, 0, 2)]) == ["area_bytes"]
    assert figures_of(E, [row("dr", 1, 0, None), row("dr", 1, 0, 2)]) == ["area_bytes"]


def test_a_ratio_is_the_geometric_mean_with_the_interval_of_the_logarithms():
    matches = [(row("dr", 1, 0, a), row("bfs", 1, 0, b)) for a, b in ((1, 2), (10, 40), (5, 40))]
    result = ratio("", "area_bytes", matches)
    logarithms = [math.log(2), math.log(4), math.log(8)]
    half = 4.303 * statistics.stdev(logarithms) / math.sqrt(3)
    assert (result.mean_a, result.mean_b, result.pairs, result.left_out) == (16 / 3, 82 / 3, 3, 0)
    assert result.ratio == pytest.approx(4)
    assert (result.low, result.high) == (
        pytest.approx(4 * math.exp(-half)),
        pytest.approx(4 * math.exp(half)),
    )


def test_what_has_no_ratio_is_left_out_and_counted():
    matches = [(row("dr", 1, 0, a), row("bfs", 1, 0, b)) for a, b in ((0, 2), (3, None), (2, 3))]
    result = ratio("", "area_bytes", matches)
    assert (result.ratio, result.low, result.high, result.pairs, result.left_out) == (
        pytest.approx(1.5),
        None,
        None,
        1,
        2,
    )
    assert ratio("", "area_bytes", matches[:2]) is None


@given(st.lists(st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6)), min_size=1, max_size=20))
def test_the_ratio_the_other_way_round_is_its_inverse(values):
    forth = ratio("", "area_bytes", [(row("dr", 1, 0, a), row("bfs", 1, 0, b)) for a, b in values])
    back = ratio("", "area_bytes", [(row("dr", 1, 0, b), row("bfs", 1, 0, a)) for a, b in values])
    assert forth.ratio == pytest.approx(1 / back.ratio, rel=1e-9)
    if forth.low is not None:
        assert forth.low == pytest.approx(1 / back.high, rel=1e-9)


def test_ratios_come_for_each_value_of_a_column():
    matches = [(row("dr", size, 0, 1), row("bfs", size, 0, size)) for size in (1, 2, 2, 3)]
    rows = ratios(matches, ["area_bytes"], by=["size"])
    assert [(row_.group, row_.ratio, row_.pairs) for row_ in rows] == [
        ("size=1", pytest.approx(1), 1),
        ("size=2", pytest.approx(2), 2),
        ("size=3", pytest.approx(3), 1),
    ]
    with figures.new() as figure:
        draw(rows, ("A", "B"), figure)
        labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert labels == ["size=1  area_bytes", "size=2  area_bytes", "size=3  area_bytes"]


@pytest.mark.parametrize("factor", [2, 1, 0.5])
def test_a_difference_is_significant_in_either_direction_and_noise_is_not(factor):
    """By the t test of the logarithms, whose 5 % point for three degrees of freedom is 3.182."""
    noise = (0.9, 1.0, 1.1, 1.05)
    matches = [(row("dr", 1, 0, 1), row("bfs", 1, 0, factor * part)) for part in noise]
    logarithms = [math.log(factor * part) for part in noise]
    t = statistics.mean(logarithms) / (statistics.stdev(logarithms) / math.sqrt(len(noise)))
    assert ratio("", "area_bytes", matches).significant == (abs(t) > 3.182) == (factor != 1)
    assert not ratio("", "area_bytes", matches[:1]).significant
    equal = ratio("", "area_bytes", [(row("dr", 1, 0, 2), row("bfs", 1, 0, 2))] * 3)
    assert (equal.low, equal.high, equal.significant) == (1, 1, False)
