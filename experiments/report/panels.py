"""Parts that the figures of experiments share: grids of panels, bars, marks of runs, legends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import mean
from typing import TYPE_CHECKING, Any

from weft.experiments.report import figures, style
from weft.experiments.report.statistics import bootstrap_interval
from weft.experiments.runner.definition import Row, Table, Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST_WIDTH_INCHES = 6.4


def select(rows: Iterable[Row], **values: Value) -> list[Row]:
    """Return the rows that have all `values`."""
    return [row for row in rows if all(row[key] == value for key, value in values.items())]


def numbers(rows: Iterable[Row], key: str) -> list[float]:
    """Return `key` of each row that has it."""
    return [float(str(row[key])) for row in rows if row.get(key) is not None]


def valid_runs(rows: Sequence[Row]) -> tuple[Sequence[Row], bool]:
    """Return the rows whose run kept fidelity and True, or all rows and False if no run did."""
    valid = [row for row in rows if not figures.failed_fidelity(row)]
    return valid or rows, bool(valid)


def values_by(rows: Iterable[Row], x: str, y: str) -> dict[float, list[float]]:
    """Return the values of `y` at each value of `x`, in ascending order of `x`."""
    values: dict[float, list[float]] = {}
    for row in rows:
        if row.get(y) is not None:
            values.setdefault(float(str(row[x])), []).append(float(str(row[y])))
    return dict(sorted(values.items()))


def means_by(rows: Iterable[Row], x: str, y: str) -> tuple[list[float], list[float]]:
    """Return the values of `x` in ascending order, and the mean of `y` at each."""
    values = values_by(rows, x, y)
    return list(values), [mean(several) for several in values.values()]


def grid(
    figure: Figure,
    count: int,
    most_columns: int,
    *,
    panel: tuple[float, float],
    margin: tuple[float, float],
    ylabel: str,
    sharey: bool = False,
) -> list[Axes]:
    """Return `count` panels in rows of at most `most_columns`; the first of each row has `ylabel`.

    Args:
        panel: width and height of a panel, inches.
        margin: width and height that the figure has beside its panels, inches.
    """
    columns = min(most_columns, count)
    rows = -(-count // columns)
    width = max(LEAST_WIDTH_INCHES, margin[0] + panel[0] * columns)
    figure.set_size_inches(width, margin[1] + panel[1] * rows)
    places = figure.subplots(rows, columns, squeeze=False, sharey=sharey)
    for axes in places.flat[count:]:
        axes.remove()
    for axes in places[:, 0]:
        axes.set_ylabel(ylabel)
    return list(places.flat[:count])


def lines_of_panels(
    figure: Figure,
    groups: Mapping[str, Table],
    columns: int,
    *,
    width: float,
    heights: Sequence[float],
    **options: Any,
) -> Iterator[tuple[Sequence[Axes], Table]]:
    """Yield a line of panels and its rows for each of `groups`, whose name is its title.

    Args:
        width: of the figure, inches.
        heights: of each line, inches.
        options: for Figure.subplots.
    """
    figure.set_size_inches(width, 0.5 + sum(heights))
    places = figure.subplots(len(groups), columns, squeeze=False, height_ratios=heights, **options)
    for line, (title, rows) in zip(places, groups.items(), strict=True):
        line[0].set_title(title, fontsize=8.5, loc="left")
        yield line, rows


def name_rows(axes: Axes, labels: Sequence[str], fontsize: float | None = None) -> None:
    """Name the rows of `axes` by `labels`, from the top."""
    axes.set_yticks(range(len(labels)), labels, fontsize=fontsize)
    axes.set_ylim(len(labels) - 0.5, -0.5)


def offsets(count: int, step: float) -> list[float]:
    """Return where `count` marks, `step` apart, stand beside the middle of them."""
    return [step * (number - (count - 1) / 2) for number in range(count)]


def bar(
    axes: Axes,
    place: float,
    values: Sequence[float],
    look: style.SeriesStyle,
    *,
    hollow: bool = False,
    interval: bool = False,
) -> None:
    """Draw a horizontal bar for the mean of `values`; nothing without values.

    Args:
        hollow: whether no run of the bar kept fidelity.
        interval: whether to draw the 95 % confidence interval of the mean.
    """
    if not values:
        return
    centre = mean(values)
    face = style.PAPER if hollow else look.colour
    axes.barh(place, centre, 0.68, facecolor=face, edgecolor=look.colour)
    if interval:
        low, high = bootstrap_interval(values)
        error = [[max(0.0, centre - low)], [max(0.0, high - centre)]]
        ink = look.colour if hollow else style.INK
        axes.errorbar([centre], [place], xerr=error, fmt="none", ecolor=ink)


def run_marks(
    axes: Axes,
    rows: Sequence[Row],
    x: Sequence[float],
    y: Sequence[float],
    look: style.SeriesStyle,
    label: str = "",
) -> None:
    """Draw a mark for each row at its `x` and `y`, hollow if its run failed fidelity."""
    figures.marks(axes, x, y, look, [figures.failed_fidelity(row) for row in rows], label)


def stroke(axes: Axes, x: float, place: float, size: float = 8) -> None:
    """Draw a stroke across a bar, such as a percentile beside its mean."""
    axes.plot([x], [place], "|", color=style.INK, markersize=size, markeredgewidth=1.6)


def write_beside(axes: Axes, x: float, place: float, text: str) -> None:
    """Write `text` to the right of the point."""
    axes.annotate(text, (x, place), (5, 0), textcoords="offset points", va="center", size=7)


def legend(figure: Figure, panels: Iterable[Axes] | None = None, **options: Any) -> None:
    """Draw one legend of all panels, or of `panels`, with each label once."""
    handles: dict[str, Any] = {}
    for axes in figure.axes if panels is None else panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(list(handles.values()), list(handles), **options)
