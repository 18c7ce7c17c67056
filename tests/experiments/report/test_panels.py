"""Figures as data: what Bars and Curves draw of a table."""

from functools import partial
from typing import Any

import pytest
from matplotlib.axes import Axes

from weft.experiments.report import figures, panels, style
from weft.experiments.report.panels import Bars, Curves, Panels, Stack
from weft.experiments.report.statistics import mean_and_half_width
from weft.experiments.runner.definition import Row, Table


def row(scheme: str, seed: int, value: float, **more: Any) -> Row:
    return {"topology": "t", "scheme": scheme, "seed": seed, "mean_ms": value, **more}


def draw(plot: Panels | Stack, table: Table) -> list[Axes]:
    """Return the panels of `plot`."""
    with figures.new() as figure:
        plot(table, figure)
        figure.draw_without_rendering()
        return list(figure.axes)


def bars_of(axes: Axes) -> dict[str, float]:
    """Return the length of each bar by its label."""
    labels = [label.get_text() for label in axes.get_yticklabels()]
    places = {round(bar.get_y() + bar.get_height() / 2): bar.get_width() for bar in axes.patches}
    return {label: places[number] for number, label in enumerate(labels) if number in places}


def test_a_bar_is_the_mean_of_valid_runs_with_its_interval() -> None:
    values = [10.0, 12.0, 17.0]
    table = [row("ttc", seed, value) for seed, value in enumerate(values)]
    table.append(row("ttc", 3, 900.0, fidelity="FAIL"))
    (axes,) = draw(Bars(columns={"mean_ms": ""}, facet=("topology",)), table)
    assert bars_of(axes) == {"TTC": 13.0}
    (error,) = axes.collections
    (segment,) = error.get_segments()
    centre, half_width = mean_and_half_width(values)
    assert segment[:, 0].tolist() == pytest.approx([centre - half_width, centre + half_width])
    assert axes.get_xlabel() == "mean (ms)"
    assert "13" in [text.get_text() for text in axes.texts]


def test_a_bar_without_a_valid_run_is_hollow() -> None:
    table = [row("ttc", 0, 5.0, fidelity="FAIL"), row("vlb", 0, 5.0, fidelity="PASS")]
    (axes,) = draw(Bars(columns={"mean_ms": ""}), table)
    colours = [bar.get_facecolor()[:3] for bar in axes.patches]
    assert (1.0, 1.0, 1.0) in colours
    assert len(set(colours)) == 2


def test_each_setting_has_a_line_and_each_column_and_value_a_panel() -> None:
    table = [
        row("ttc", 0, 1.0, late=0.1, rate=rate, damage=damage)
        for rate in (1, 10)
        for damage in ("none", "link")
    ]
    plot = Bars(columns={"mean_ms": "", "late": ""}, facet=("topology", "rate"), across="damage")
    axes = draw(plot, table)
    assert len(axes) == 2 * 2 * 2
    titles = [place.get_title(loc="left") for place in axes]
    assert titles[0] == "t, rate=1\ndamage: none"
    assert titles[1] == "damage: link"
    assert titles[4] == "t, rate=10\ndamage: none"


def test_columns_that_no_run_has_are_left_out() -> None:
    plot = Bars(columns={"mean_ms": "", "absent_ms": ""})
    assert len(draw(plot, [row("ttc", 0, 1.0, absent_ms=None)])) == 1
    assert draw(plot, []) == []


def test_strokes_mark_other_columns_beside_a_bar() -> None:
    plot = Bars(columns={"mean_ms": ""}, strokes={"mean_ms": {"p99_ms": "99th percentile"}})
    (axes,) = draw(plot, [row("ttc", seed, 1.0, p99_ms=8.0 + seed) for seed in (0, 2)])
    (stroke,) = [line for line in axes.get_lines() if line.get_label() == "99th percentile"]
    assert list(stroke.get_xdata()) == [9.0]


def test_bars_of_several_keys_are_named_by_those_that_vary() -> None:
    table = [
        row(scheme, 0, 1.0, transport=transport, control="reno")
        for scheme in ("vlb", "ttc")
        for transport in ("tcp", "mptcp")
    ]
    (axes,) = draw(Bars(columns={"mean_ms": ""}, by=("scheme", "transport", "control")), table)
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["VLB, tcp", "VLB, mptcp", "TTC, tcp", "TTC, mptcp"]


def test_a_curve_is_the_mean_at_each_place_with_a_band() -> None:
    values = {0.2: [1.0, 3.0], 0.8: [4.0, 8.0]}
    table = [
        row("ttc", seed, value, load_fraction=load)
        for load, several in values.items()
        for seed, value in enumerate(several)
    ]
    plot = Curves(columns={"mean_ms": ""}, x="load_fraction", band=panels.extremes)
    (axes,) = draw(plot, table)
    (line,) = axes.get_lines()
    assert line.get_xydata().tolist() == [[0.2, 2.0], [0.8, 6.0]]
    band = axes.collections[0].get_datalim(axes.transData)
    assert (band.y0, band.y1) == (1.0, 8.0)


def test_a_scheme_has_its_colour_and_other_series_one_each() -> None:
    table = [row("ttc", 0, 1.0, x=x, delta=delta) for x in (1, 2) for delta in (0, 1)]
    (axes,) = draw(Curves(columns={"mean_ms": ""}, x="x"), table)
    assert [line.get_color() for line in axes.get_lines()] == [style.SCHEMES["ttc"].colour]
    (axes,) = draw(Curves(columns={"mean_ms": ""}, x="x", series="delta"), table)
    assert [line.get_label() for line in axes.get_lines()] == ["delta 0", "delta 1"]
    assert len({line.get_color() for line in axes.get_lines()}) == 2


def test_a_dash_tells_lines_of_one_series_apart() -> None:
    table = [row("ttc", 0, 1.0, x=x, model_ms=2.0) for x in (1, 2)]
    both = {"mean_ms": "measured", "model_ms": "model"}
    prepared = partial(panels.melted, columns=both, name="source", value="time_ms")
    (axes,) = draw(
        Curves(columns={"time_ms": ""}, x="x", dash="source", rows=prepared),
        table,
    )
    labels = [(line.get_label(), line.get_linestyle()) for line in axes.get_lines()]
    assert labels == [("TTC, measured", "-"), ("TTC, model", "--")]


def test_settings_with_one_panel_each_share_a_line() -> None:
    table = [row("ttc", 0, 1.0, x=x, rate=rate) for x in (1, 2) for rate in range(5)]
    plot = Curves(columns={"mean_ms": ""}, x="x", facet=("topology", "rate"))
    assert [len(line) for line in plot.lines(table)] == [2, 2, 1]


def test_parts_of_a_stack_without_rows_are_left_out() -> None:
    table = [row("ttc", 0, 1.0, x=1)]
    missing = Curves(columns={"absent": ""}, x="x")
    assert len(draw(Stack(Bars(columns={"mean_ms": ""}), missing), table)) == 1


def test_ratios_are_to_the_baseline_of_the_same_setting() -> None:
    table = [row("ecmp", seed, value, rate=1) for seed, value in enumerate((2.0, 4.0))]
    table += [row("ttc", 0, 6.0, rate=1), row("ttc", 0, 6.0, rate=2)]
    ratios = panels.relative(table, ["mean_ms"], {"scheme": "ecmp"}, ["rate"])
    assert [(ratio["scheme"], ratio["mean_ms"]) for ratio in ratios] == [
        ("ecmp", pytest.approx(2 / 3)),
        ("ecmp", pytest.approx(4 / 3)),
        ("ttc", 2.0),
    ]


def test_lists_become_rows() -> None:
    table: list[Row] = [{"seed": 0, "a": [1.0, 2.0], "b": [5.0]}]
    assert panels.exploded(table, ["a", "b"], "time_us", 10) == [
        {"seed": 0, "a": 1.0, "b": 5.0, "time_us": 0},
        {"seed": 0, "a": 2.0, "b": None, "time_us": 10},
    ]


def test_a_distribution_pools_the_valid_runs_of_a_group() -> None:
    table = [
        row("ttc", 0, 1.0, times_ms=[3.0, 1.0], fidelity="PASS"),
        row("ttc", 1, 1.0, times_ms=[2.0, 1.0], fidelity="PASS"),
        row("ttc", 2, 1.0, times_ms=[9.0], fidelity="FAIL"),
    ]
    points = panels.cumulative(table, "times_ms", ["scheme"])
    assert [(point["times_ms"], point["fraction"]) for point in points] == [
        (1.0, 0.5),
        (2.0, 0.75),
        (3.0, 1.0),
    ]
    assert {point["scheme"] for point in points} == {"ttc"}


def test_large_numbers_are_written_short() -> None:
    assert [style.number(value) for value in (0.1234, 12.34, 1234, 5.432e8)] == [
        "0.123",
        "12.3",
        "1.23 k",
        "543 M",
    ]


def test_a_line_of_many_panels_is_broken_evenly() -> None:
    table = [row("ttc", 0, 1.0, **{f"c{number}_ms": 1.0 for number in range(4)})]
    plot = Bars(columns={f"c{number}_ms": "" for number in range(4)})
    assert [len(line) for line in plot.lines(table)] == [2, 2]


def test_bars_of_a_line_share_a_scale_that_shows_the_longest() -> None:
    table = [row("ttc", 0, time, damage=damage) for damage, time in (("none", 1.0), ("link", 9.0))]
    axes = draw(Bars(columns={"mean_ms": ""}, across="damage"), table)
    assert [place.get_xlim()[1] > 9.0 for place in axes] == [True, True]


def test_bars_without_length_begin_at_the_left_edge() -> None:
    (axes,) = draw(Bars(columns={"mean_ms": ""}), [row(name, 0, 0.0) for name in ("vlb", "ttc")])
    assert axes.get_xlim()[0] == 0
