"""Schemes of one figure can be told apart: by colour, by marker, and in black and white."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np
import pytest

from weft.daemons.core import registry
from weft.experiments.report import figures, style
from weft.experiments.report.style import SeriesStyle

FAMILIES = [style.SERVER_SCHEMES, style.SWITCH_SCHEMES]


def lab(colour: str) -> np.ndarray:
    """CIE 1976 L*, a*, b* of an sRGB colour such as #0072b2 (white: D65)."""
    rgb = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    x, y, z = np.cbrt(to_xyz @ linear / np.array([0.9505, 1.0, 1.089]))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("family", FAMILIES, ids=["servers", "switches"])
def test_schemes_of_one_figure_differ_in_colour_marker_and_print(
    family: Mapping[str, SeriesStyle],
) -> None:
    for one, other in combinations(family.values(), 2):
        difference = lab(one.colour) - lab(other.colour)
        assert np.linalg.norm(difference) > 20, (one, other)
        assert one.marker != other.marker, (one, other)
        assert one.dash != other.dash or abs(difference[0]) > 12, (one, other)


def test_every_load_balancing_scheme_has_a_look() -> None:
    assert {
        name for name, registration in registry.schemes().items() if registration.selection
    } <= set(style.SWITCH_SCHEMES)


def test_one_scheme_with_several_parameters_keeps_its_colour_and_changes_dash_and_marker() -> None:
    specs = ["micro", "ttc:delta=0", "ttc:delta=2", "dmodk", "ttc:delta=2,tie=redirect"]
    looks = style.lines(specs)
    colours = [look.colour for look in looks.values()]
    assert colours.count(style.SWITCH_SCHEMES["ttc"].colour) == 3
    assert len({look.marker for look in looks.values()}) == len(specs)
    assert [looks[spec].dash for spec in specs if spec.startswith("ttc")] == ["-", "--", "-."]
    assert looks["ttc:delta=2"].label == "TTC delta=2"


def test_rows_of_one_setting_are_together_and_what_differs_is_named() -> None:
    rows = [
        {"topology": "a", "rate": rate, "queue": 5, "seed": seed}
        for rate in (10, 20)
        for seed in (0, 1)
    ]
    assert figures.by_setting(rows[:2], ["topology", "rate", "queue"]) == {"a": rows[:2]}
    assert figures.by_setting(rows, ["topology", "queue", "rate"], always=2) == {
        "a, queue=5, rate=10": rows[:2],
        "a, queue=5, rate=20": rows[2:],
    }


def test_of_two_lines_in_the_same_place_both_are_seen() -> None:
    looks = style.lines(["micro", "ttc:delta=0"])
    with figures.new() as figure:
        axes = figure.add_subplot()
        micro, ttc = (axes.plot([1, 2], [1, 2], **style.line(look))[0] for look in looks.values())
    assert (ttc.get_linestyle(), micro.get_linestyle()) == ("-", "--")
    assert ttc.get_zorder() < micro.get_zorder()
    assert ttc.get_markersize() > micro.get_markersize()


def test_a_scheme_of_somebody_elses_has_a_look_of_its_name() -> None:
    look = style.scheme("deflection:hops=3")
    assert look == style.scheme("deflection")
    assert look.label == "deflection"
    assert look != style.scheme("another")


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (1, 100, {"2", "5", "20", "50"}),
        (0.01, 1e4, set()),
        (1.41, 1.55, {"1.42", "1.44", "1.46", "1.48", "1.5", "1.52", "1.54"}),
    ],
)
def test_a_logarithmic_axis_has_numbers_however_little_or_much_it_spans(
    low: float, high: float, labels: set[str]
) -> None:
    with figures.new() as figure:
        axes = figure.subplots()
        axes.set(yscale="log", ylim=(low, high))
        figures.plain_numbers(axes.yaxis)
        figure.draw_without_rendering()
        inside = [tick for tick in axes.yaxis.get_minor_ticks() if low < tick.get_loc() < high]
        assert {tick.label1.get_text() for tick in inside} - {""} == labels


@pytest.mark.parametrize("table", [style.SERVER_SCHEMES, style.SWITCH_SCHEMES])
def test_schemes_of_packages_look_like_none_beside_them(table):
    for name in map("own-{}".format, range(200)):
        looks = style.lines([f"{name}:b=1", f"{name}:b=2", "another", *list(table)[:8]])
        assert len({(look.marker) for look in looks.values()}) == len(looks)
        assert len({look.colour for look in looks.values()}) == len(looks) - 1
