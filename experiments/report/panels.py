"""Figures of experiments as data: Bars and Curves, in panels by column and setting.

`Experiment.plot` takes such a figure as it is:

    plot=Bars(
        columns={"goodput_fraction": "mean goodput (fraction)", "late_fraction": ""},
        by=("scheme", "transport"),
        facet=("topology", "rate_mbps", "damage"),
    )
    plot=Curves(
        columns={"mean_ms": "mean time (ms)", "p99_ms": ""},
        x="load_fraction",
        series="scheme",
        facet=("topology", "traffic"),
        log=("mean_ms", "p99_ms"),
    )

A figure with parts of both kinds is Stack(Bars(...), Curves(...)).  Figures that show something
else are functions (table, figure) made of the parts below.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from statistics import mean
from textwrap import fill
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from weft.experiments.report import figures, style
from weft.experiments.report.statistics import mean_and_half_width
from weft.experiments.runner.definition import Row, Table, Value
from weft.experiments.runner.rows import grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

LEAST_WIDTH_INCHES = 6.4
MOST_MARKS = 40  # a line with more places has no marks
MOST_PANELS = 3  # in a line
LETTERS_AN_INCH = 14  # of a title
LEGEND_LETTERS_AN_INCH = 16
STROKES = ("|", "x", "+", "o", "d")


def select(rows: Iterable[Row], **values: Value) -> list[Row]:
    """Return the rows that have all `values`."""
    return [row for row in rows if all(row[key] == value for key, value in values.items())]


def number_of(row: Row, key: str) -> float:
    """Return `key` of a row, which is a number."""
    return float(row[key])


def numbers(rows: Iterable[Row], key: str) -> list[float]:
    """Return `key` of each row that has it."""
    return [number_of(row, key) for row in rows if row.get(key) is not None]


def varied(table: Sequence[Row], by: Sequence[str], key: str, least: int = 2) -> list[Row]:
    """Return the rows of groups, equal in `by`, that have `least` or more values of `key`."""
    groups = grouped(table, by)
    counts = {group: len({row[key] for row in rows}) for group, rows in groups.items()}
    return [row for row in table if counts[tuple(row[name] for name in by)] >= least]


def valid_runs(rows: Sequence[Row]) -> tuple[Sequence[Row], bool]:
    """Return the rows whose run kept fidelity and True, or all rows and False if no run did."""
    valid = [row for row in rows if not figures.failed_fidelity(row)]
    return valid or rows, bool(valid)


def values_by(rows: Iterable[Row], x: str, y: str) -> dict[float, list[float]]:
    """Return the values of `y` at each value of `x`, in ascending order of `x`."""
    values: dict[float, list[float]] = {}
    for row in rows:
        if row.get(y) is not None:
            values.setdefault(number_of(row, x), []).append(number_of(row, y))
    return dict(sorted(values.items()))


def name_rows(axes: Axes, labels: Sequence[str]) -> None:
    """Name the rows of `axes` by `labels`, from the top."""
    axes.set_yticks(range(len(labels)), labels, fontsize=9.5)
    axes.set_ylim(len(labels) - 0.5, -0.5)


def bar(
    axes: Axes, place: float, values: Sequence[float], look: style.SeriesStyle, *, hollow: bool
) -> None:
    """Draw a horizontal bar for the mean of `values`, with its interval if there are several.

    hollow: whether no run of the bar kept fidelity.
    """
    centre = mean(values)
    face = style.PAPER if hollow else look.colour
    axes.barh(place, centre, 0.68, facecolor=face, edgecolor=look.colour)
    if len(values) > 1:
        ends = interval(values)
        ink = look.colour if hollow else style.INK
        axes.errorbar(
            [centre], [place], xerr=[[centre - ends[0]], [ends[1] - centre]], fmt="none", ecolor=ink
        )


def write_beside(axes: Axes, x: float, place: float, text: str) -> None:
    """Write `text` to the right of the point."""
    box = {"facecolor": style.PAPER, "edgecolor": "none", "pad": 0.6}
    axes.annotate(
        text, (x, place), (5, 0), textcoords="offset points", va="center", size=7, bbox=box
    )


def write_at_edge(axes: Axes, place: float, text: str) -> None:
    """Write `text` at the right edge, in line with the row `place`."""
    at_edge = axes.get_yaxis_transform()
    axes.annotate(text, (1, place), xycoords=at_edge, ha="right", va="center", size=7)


def legend(place: Figure | SubFigure, width_inches: float) -> None:
    """Draw one legend of all panels above them, with each label once, in 4 columns at most."""
    handles: dict[str, Any] = {}
    for axes in place.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if handles:
        letters = max(map(len, handles)) + 6  # with the mark
        columns = max(1, min(4, int(LEGEND_LETTERS_AN_INCH * width_inches / letters)))
        labels = list(handles)
        place.legend(
            list(handles.values()), labels, loc="outside upper left", ncols=columns, fontsize=7.5
        )


def every_row(table: Table) -> Table:
    return table


def ordered(values: Iterable[Any]) -> list[Any]:
    """Return each of `values` once: numbers ascending, words as they come."""
    distinct: list[Any] = list(dict.fromkeys(values))
    if all(isinstance(value, int | float) for value in distinct):
        return sorted(distinct)
    return distinct


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval (low, high) of the mean of `values`.

    It ends at 0 if no value is negative.
    """
    centre, half_width = mean_and_half_width(values)
    low = centre - half_width
    return max(0.0, low) if min(values) >= 0 else low, centre + half_width


def extremes(values: Sequence[float]) -> tuple[float, float]:
    """Return the least and the largest of `values`."""
    return min(values), max(values)


def relative(table: Table, columns: Iterable[str], over: Row, same: Sequence[str]) -> list[Row]:
    """Return the rows with `columns` divided by their mean in the baseline's rows.

    over: values that select the baseline's rows, such as {"scheme": "ecmp"}.
    same: keys in which a row agrees with its baseline; rows without a baseline are left out.
    """
    baselines = select(table, **over)
    ratios = []
    for row in table:
        base = select(baselines, **{key: row[key] for key in same})
        if base:
            means = {key: mean(numbers(base, key)) for key in columns}
            ratios.append(row | {key: row[key] / means[key] for key in means})
    return ratios


def melted(table: Table, columns: Mapping[str, str], name: str, value: str) -> list[Row]:
    """Return a row for each row and column: its label as `name`, its figure as `value`.

    It makes series of several columns, such as a measured and a predicted one.
    """
    return [
        row | {name: label, value: row[column]}
        for column, label in columns.items()
        for row in table
        if row.get(column) is not None
    ]


def exploded(table: Table, columns: Iterable[str], index: str, step: float = 1) -> list[Row]:
    """Return a row for each element of the lists `columns`; its place times `step` is `index`."""
    rows = []
    for row in table:
        lists: dict[str, Any] = {key: row[key] for key in columns}
        for place in range(max(map(len, lists.values()))):
            elements = {key: values[place] for key, values in lists.items() if place < len(values)}
            rows.append({**row, **dict.fromkeys(lists), **elements, index: place * step})
    return rows


def cumulative(table: Table, column: str, keys: Sequence[str]) -> list[Row]:
    """Return the distribution of the lists `column`, pooled over rows that agree in `keys`.

    Each element becomes a row: its value is `column`, the fraction of elements up to it is
    `fraction`.  Runs that failed fidelity count only without any other.
    """
    rows: list[Row] = []
    for group in grouped(table, keys).values():
        runs, _ = valid_runs(group)
        elements = np.concatenate([np.array(run[column], float) for run in runs])
        values, counts = np.unique(elements, return_counts=True)
        fractions = counts.cumsum() / max(1, len(elements))
        common = {key: runs[0].get(key) for key in (*keys, "fidelity")}
        for value, fraction in zip(values.tolist(), fractions.tolist(), strict=True):
            rows.append({**common, column: value, "fraction": fraction})
    return rows


def parts_of(line: Sequence[Panel]) -> list[list[Panel]]:
    """Return the panels of a line in lines of MOST_PANELS at most, as even as they can be."""
    length = -(-len(line) // -(-len(line) // MOST_PANELS))
    return [list(line[first : first + length]) for first in range(0, len(line), length)]


class Panel(NamedTuple):
    """A panel of a figure.

    column: the figure that it shows.
    rows: the rows that have it.
    """

    title: str
    column: str
    rows: list[Row]


@dataclass(frozen=True, kw_only=True)
class Panels(ABC):
    """A figure as data: `Experiment.plot` is one.  Use Bars or Curves; several make a Stack.

    A line of panels stands for a setting, a panel for a column.  Where each line would have a
    single panel, the panels of several settings share a line.

    columns: label of the axis by column of the table; an empty label follows from the column's
        name and unit.  Columns without any figure are left out.
    facet: parameters; each combination of their values is a setting with its own line.  A title
        names the first of them, the first `always`, and those that vary.
    across: a parameter; each of its values has a panel of its own within a line.
    log: columns, or x, whose axis is logarithmic.
    baseline: value that a thin line marks, such as 1 for ratios.
    rows: prepares the table: selects rows, or adds columns, by partial(relative, ...), melted,
        exploded or cumulative.
    looks: SeriesStyle of each value of a key; schemes have the same look in every figure.
    panel_height_inches: of a panel of curves; that of bars follows from their number.
    wrap: settings in a line.
    """

    columns: Mapping[str, str]
    facet: Sequence[str] = ()
    always: int = 1
    across: str = ""
    log: Collection[str] = ()
    baseline: float | None = None
    rows: Callable[[Table], Table] = every_row
    looks: Callable[[str, Iterable[Value]], style.SeriesLooks] = style.looks
    panel_height_inches: float = 2.6
    wrap: int = 2

    PANEL_INCHES: ClassVar[float]
    MARGIN_INCHES: ClassVar[float]

    def __call__(self, table: Table, figure: Figure) -> None:
        """Draw the rows on an empty figure."""
        Stack(self)(table, figure)

    def lines(self, table: Table) -> list[list[Panel]]:
        """Return the panels of each line; empty if the table has no rows to draw."""
        rows = self.rows(table)
        columns = [key for key in self.columns if any(row.get(key) is not None for row in rows)]
        if not columns:
            return []
        values = ordered(row[self.across] for row in rows) if self.across else []
        groups = {"": list(rows)}
        if self.facet:
            groups = figures.by_setting(rows, self.facet, always=self.always)
        lines = [self.line(title, group, columns, values) for title, group in groups.items()]
        if any(len(line) > 1 for line in lines):
            return [part for line in lines for part in parts_of(line)]
        single = [line[0] for line in lines]
        return [single[first : first + self.wrap] for first in range(0, len(single), self.wrap)]

    def line(
        self, title: str, rows: Sequence[Row], columns: Iterable[str], values: Sequence[Value]
    ) -> list[Panel]:
        """Return the panels of one setting: for each column, one for each value of `across`."""
        parts = {
            f"{style.words(self.across)}: {value}": select(rows, **{self.across: value})
            for value in values
        }
        line = [
            Panel(name, column, [row for row in part if row.get(column) is not None])
            for column in columns
            for name, part in (parts or {"": list(rows)}).items()
        ]
        heading = fill(
            title, int(LETTERS_AN_INCH * self.PANEL_INCHES * min(len(line), MOST_PANELS))
        )
        line[0] = line[0]._replace(title=f"{heading}\n{line[0].title}".strip())
        return line

    def size_inches(self, lines: Sequence[Sequence[Panel]]) -> tuple[float, float]:
        """Return width and height of the drawing."""
        width = self.MARGIN_INCHES + self.PANEL_INCHES * max(map(len, lines))
        return max(LEAST_WIDTH_INCHES, width), 0.4 + sum(map(self.height_inches, lines))

    @abstractmethod
    def height_inches(self, line: Sequence[Panel]) -> float:
        """Return the height of a line of panels."""

    @abstractmethod
    def draw_line(
        self, line: Sequence[Panel], axes: Sequence[Axes], looks: style.SeriesLooks
    ) -> None:
        """Draw the panels of a line."""

    @property
    @abstractmethod
    def coloured(self) -> str:
        """Return the key whose values have looks of their own."""

    def draw(self, place: Figure | SubFigure, lines: Sequence[Sequence[Panel]]) -> None:
        """Draw the panels into `place`, with one legend above them."""
        rows = [row for line in lines for panel in line for row in panel.rows]
        looks = self.looks(self.coloured, ordered(row[self.coloured] for row in rows))
        heights = [self.height_inches(line) for line in lines]
        grid = place.subplots(
            len(lines), max(map(len, lines)), squeeze=False, height_ratios=heights
        )
        for line, places in zip(lines, grid, strict=True):
            self.draw_line(line, places[: len(line)], looks)
            for panel, axes in zip(line, places, strict=False):
                axes.set_title(panel.title, fontsize=8.5)
                axes.set_visible(bool(panel.rows))
            for axes in places[len(line) :]:
                axes.remove()
        legend(place, self.size_inches(lines)[0])

    def label(self, axes: Axes, name: Literal["x", "y"], key: str) -> None:
        """Label the x or y axis, which shows `key`, and set its scale."""
        text = self.columns.get(key) or style.axis(key)
        axis = axes.xaxis if name == "x" else axes.yaxis
        length = self.PANEL_INCHES if name == "x" else self.panel_height_inches - 0.6
        axis.set_label_text(fill(text, int(LETTERS_AN_INCH * length)), fontsize=8.5)
        if key in self.log:
            axes.set(**{f"{name}scale": "log"})
            figures.plain_numbers(axis)
        elif key.endswith("_bps"):
            axis.set_major_formatter(style.number)


@dataclass(frozen=True, kw_only=True)
class Bars(Panels):
    """Horizontal bars: means over the runs that kept fidelity, with 95 % intervals.

    Each bar has its mean in figures, in a column at the right edge if there are marks beside the
    bars, so that no mark seems to have them.  A bar is hollow if no run of it kept fidelity.

    by: keys that tell the bars of a panel apart; the first has the colours.
    strokes: further columns by the column that they are marked beside, with their labels, such as
        {"mean_ms": {"p99_ms": "99th percentile", "paper_ms": "the paper"}}.
    """

    by: Sequence[str] = ("scheme",)
    strokes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    wrap: int = 1

    PANEL_INCHES = 2.5
    MARGIN_INCHES = 1.6

    @property
    def coloured(self) -> str:
        return self.by[0]

    def bars(self, line: Sequence[Panel], looks: style.SeriesLooks) -> dict[tuple[Value, ...], str]:
        """Return the label of each bar of a line by its values of `by`, in their order."""
        rows = [row for panel in line for row in panel.rows]
        keys = ordered(tuple(row[key] for key in self.by) for row in rows)
        order = list(looks)
        keys.sort(key=lambda key: order.index(key[0]))
        varied = [
            place for place in range(1, len(self.by)) if len({key[place] for key in keys}) > 1
        ]
        return {
            key: ", ".join([looks[key[0]].label, *(str(key[place]) for place in varied)])
            for key in keys
        }

    def height_inches(self, line: Sequence[Panel]) -> float:
        rows = [row for panel in line for row in panel.rows]
        return 0.85 + 0.23 * len({tuple(row[key] for key in self.by) for row in rows})

    def draw_line(
        self, line: Sequence[Panel], axes: Sequence[Axes], looks: style.SeriesLooks
    ) -> None:
        labels = self.bars(line, looks)
        first: dict[str, Axes] = {}
        for panel, place in zip(line, axes, strict=True):
            for number, key in enumerate(labels):
                rows = select(panel.rows, **dict(zip(self.by, key, strict=True)))
                self.draw_bar(place, number, rows, panel.column, looks[key[0]])
            if panel.column in self.strokes:
                place.plot([], [], " ", label="figures at the right: means")
            name_rows(place, list(labels.values()) if place is axes[0] else [""] * len(labels))
            if panel.column in first:
                place.sharex(first[panel.column])
            first.setdefault(panel.column, place)
        for panel, place in zip(line, axes, strict=True):
            self.finish(place, panel.column)

    def finish(self, axes: Axes, column: str) -> None:
        """Label and scale a panel that shows `column`, with room for the figures of its bars."""
        self.label(axes, "x", column)
        if self.baseline is not None:
            axes.axvline(self.baseline, color=style.INK, linewidth=0.7)
        axes.margins(x=0.24)
        axes.grid(visible=False, axis="y")
        axes.autoscale_view()
        if column not in self.log:
            low, high = axes.dataLim.intervalx
            # where all bars are 0, else a scale of hundredths to both sides
            axes.set_xlim(left=min(0, axes.get_xlim()[0]) if low < high else 0)

    def draw_bar(
        self, axes: Axes, place: int, rows: Table, column: str, look: style.SeriesStyle
    ) -> None:
        """Draw the mean of `column`, its interval and its strokes."""
        if not rows:
            return
        runs, valid = valid_runs(rows)
        values = numbers(runs, column)
        bar(axes, place, values, look, hollow=not valid)
        strokes = self.strokes.get(column, {}).items()
        for (other, label), marker in zip(strokes, STROKES, strict=False):
            if others := numbers(runs, other):
                shape: dict[str, Any] = {"color": style.INK, "markerfacecolor": "none"}
                axes.plot(mean(others), place, marker, markersize=7, label=label, **shape)
        if strokes:
            write_at_edge(axes, place, style.number(mean(values)))
        else:
            write_beside(axes, interval(values)[1], place, style.number(mean(values)))


@dataclass(frozen=True, kw_only=True)
class Curves(Panels):
    """Means over the runs that kept fidelity along `x`, a line for each series, with their bands.

    Marks are hollow if no run of the line kept fidelity.

    x: a numeric parameter, or a column that `rows` adds.
    series: key with a line and a colour for each value.
    dash: another key with a line for each value, told apart by dashes.
    band: lower and upper end of the band by the values at a place: `interval` or `extremes`.
    """

    x: str
    series: str = "scheme"
    dash: str = ""
    band: Callable[[Sequence[float]], tuple[float, float]] = interval

    PANEL_INCHES = 3.1
    MARGIN_INCHES = 0.3

    @property
    def coloured(self) -> str:
        return self.series

    def height_inches(self, line: Sequence[Panel]) -> float:
        return self.panel_height_inches

    def draw_line(
        self, line: Sequence[Panel], axes: Sequence[Axes], looks: style.SeriesLooks
    ) -> None:
        for panel, place in zip(line, axes, strict=True):
            for value, look in looks.items():
                rows = select(panel.rows, **{self.series: value})
                if self.dash:
                    self.draw_dashed(place, rows, panel.column, look)
                else:
                    self.draw_curve(place, rows, panel.column, look)
            self.label(place, "x", self.x)
            self.label(place, "y", panel.column)
            if self.baseline is not None:
                place.axhline(self.baseline, color=style.INK, linewidth=0.7)

    def draw_dashed(
        self, axes: Axes, rows: Sequence[Row], column: str, look: style.SeriesStyle
    ) -> None:
        """Draw the lines of one series, one for each value of `dash`."""
        for value, dash in zip(ordered(row[self.dash] for row in rows), cycle(style.DASHES)):
            label = f"{look.label}, {value}"
            self.draw_curve(
                axes,
                select(rows, **{self.dash: value}),
                column,
                look._replace(dash=dash, label=label),
            )

    def draw_curve(
        self, axes: Axes, rows: Sequence[Row], column: str, look: style.SeriesStyle
    ) -> None:
        """Draw one line of means and its band."""
        if not rows:
            return
        runs, valid = valid_runs(rows)
        values = values_by(runs, self.x, column)
        means = [mean(group_values) for group_values in values.values()]
        shape = style.line(look)
        if len(values) > MOST_MARKS:
            shape["marker"] = ""
        if not valid:
            shape |= {"markerfacecolor": style.PAPER, "markeredgecolor": look.colour}
        axes.plot(list(values), means, **shape)
        if any(len(group_values) > 1 for group_values in values.values()):
            low, high = zip(*map(self.band, values.values()), strict=True)
            axes.fill_between(list(values), low, high, color=look.colour, alpha=0.13, linewidth=0)
            axes.vlines(list(values), low, high, color=look.colour, linewidth=0.8)


class Stack:
    """A figure of several parts, one below the other; parts without rows are left out."""

    def __init__(self, *parts: Panels) -> None:
        self.parts = parts

    def __call__(self, table: Table, figure: Figure) -> None:
        """Draw the rows on an empty figure."""
        blocks = [(part, lines) for part in self.parts if (lines := part.lines(table))]
        if not blocks:
            figure.text(0.5, 0.5, "no run has what this figure shows", ha="center")
            return
        widths, heights = zip(*(part.size_inches(lines) for part, lines in blocks), strict=True)
        figure.set_size_inches(max(widths), 0.2 + sum(heights))
        places = figure.subfigures(len(blocks), 1, squeeze=False, height_ratios=heights).flat
        for place, (part, lines) in zip(places, blocks, strict=True):
            part.draw(place, lines)
