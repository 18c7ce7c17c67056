"""Comparison of two sides of an experiment: the ratio of each figure, with its interval.

A side is a value of a parameter, an engine or a clock; or another folder of results, measured by
another commit, on another kernel or another machine.  Runs are paired that agree in everything
else, also in their seed, so faults and traffic were the same on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.experiments.report.statistics import mean_and_half_width
from weft.experiments.runner.definition import Experiment, Row, Table
from weft.experiments.runner.rows import CIRCUMSTANCES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# columns that distinguish runs beside their parameters
IDENTITY = ("seed", "engine", "clock", "hop_ns", "syscall_ns")


@dataclass(frozen=True)
class Ratio:
    """One figure of side B relative to side A, over the pairs of one group.

    group: the values that the group's runs share, empty for all runs.
    mean_a, mean_b: over the pairs that count.
    ratio: the geometric mean of B / A.
    low, high: its 95 % confidence interval (Student's t of the logarithms), None for a single pair.
    pairs: number of pairs that count.
    left_out: number of pairs of which a side is not above zero or was not measured.
    """

    group: str
    figure: str
    mean_a: float
    mean_b: float
    ratio: float
    low: float | None
    high: float | None
    pairs: int
    left_out: int

    @property
    def significant(self) -> bool:
        """True if the interval excludes 1."""
        if self.low is None or self.high is None:
            return False
        return self.low > 1 or self.high < 1

    def row(self) -> Row:
        """Return the ratio as a row of a table."""
        return {
            **({"runs": self.group} if self.group else {}),
            "figure": self.figure,
            "A": self.mean_a,
            "B": self.mean_b,
            "B/A": self.ratio,
            "low": self.low,
            "high": self.high,
            "pairs": self.pairs,
            "left_out": self.left_out,
        }


def pairs(
    experiment: Experiment, a: Table, b: Table, differing: Iterable[str]
) -> list[tuple[Row, Row]]:
    """Return the pairs of rows that agree in parameters, seed, engine and clock.

    Args:
        experiment: that the rows are of.
        a: rows of side A.
        b: rows of side B.
        differing: columns in which the sides may differ.
    """
    keys = [key for key in (*experiment.sweep, *IDENTITY) if key not in set(differing)]

    def agrees(row: Row) -> tuple[object, ...]:
        return tuple(row.get(key) for key in keys)

    others = {agrees(row): row for row in b}
    return [(row, others[agrees(row)]) for row in a if agrees(row) in others]


def figures_of(experiment: Experiment, rows: Table) -> list[str]:
    """Return the numeric figures, in the order of the rows' columns."""
    known = {*experiment.sweep, *CIRCUMSTANCES}
    names = dict.fromkeys(key for row in rows for key in row if key not in known)
    return [
        name
        for name in names
        if all(is_number(row.get(name)) for row in rows if row.get(name) is not None)
    ]


def is_number(value: object) -> bool:
    """Return whether `value` is a number; bool is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def ratios(
    paired: Sequence[tuple[Row, Row]], figures: Sequence[str], by: Sequence[str] = ()
) -> list[Ratio]:
    """Return a ratio for each figure and each combination of values of the columns `by`.

    Figures without a pair that counts are left out.
    """
    groups: dict[str, list[tuple[Row, Row]]] = {}
    for pair in paired:
        groups.setdefault(" ".join(f"{key}={pair[0].get(key)}" for key in by), []).append(pair)
    every = (ratio(group, name, pairs) for group, pairs in groups.items() for name in figures)
    return [comparison for comparison in every if comparison is not None]


def ratio(group: str, figure: str, paired: Sequence[tuple[Row, Row]]) -> Ratio | None:
    """Return B / A of one figure; None if no pair counts."""
    values = [(a.get(figure), b.get(figure)) for a, b in paired]
    good = [
        (float(a), float(b))
        for a, b in values
        if isinstance(a, int | float) and isinstance(b, int | float) and a > 0 and b > 0
    ]
    if not good:
        return None
    middle, half = mean_and_half_width([math.log(b / a) for a, b in good])
    single = len(good) == 1
    return Ratio(
        group=group,
        figure=figure,
        mean_a=sum(a for a, _ in good) / len(good),
        mean_b=sum(b for _, b in good) / len(good),
        ratio=math.exp(middle),
        low=None if single else math.exp(middle - half),
        high=None if single else math.exp(middle + half),
        pairs=len(good),
        left_out=len(values) - len(good),
    )


def draw(rows: Sequence[Ratio], names: tuple[str, str], figure: Figure) -> None:
    """Draw each ratio and its interval on a logarithmic axis, with a line at equality."""
    axes = figure.subplots()
    labels = [f"{row.group}  {row.figure}".strip() for row in rows]
    figure.set_size_inches(4.8 + 0.075 * max(map(len, labels)), 1.5 + 0.28 * len(rows))
    places = list(range(len(rows)))[::-1]
    intervals = [(row.low or row.ratio, row.high or row.ratio) for row in rows]
    for y, row, interval in zip(places, rows, intervals, strict=True):
        colour = "#b03a2e" if row.significant else "#555555"
        axes.plot(interval, [y, y], color=colour, linewidth=1.6)
        axes.plot([row.ratio], [y], marker="o", markersize=5, color=colour)
    axes.set_yticks(places, labels)
    axes.set_ylim(-0.7, len(rows) - 0.3)
    scale_ratios(axes, [end for interval in intervals for end in interval])
    axes.set_title(f"{names[1]} relative to {names[0]}", fontsize=10)


def scale_ratios(axes: Axes, ends: Sequence[float]) -> None:
    """Give the x axis a logarithmic scale that holds `ends`, with a line at equality."""
    axes.axvline(1, color="#999999", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("ratio: geometric mean, 95 % interval (red: without 1)")
    axes.set_xlim(min(0.8, min(ends) / 1.1), max(1.25, max(ends) * 1.1))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(minor_ticks(ends))


def minor_ticks(spread: Sequence[float]) -> Callable[[float, float], str]:
    """Return the labels between powers of ten, used only on an axis too short for two of them."""
    short = max(spread) / min(spread) < 30
    return lambda x, _: f"{x:g}" if short and f"{x:e}"[0] in "235" else ""
