"""Figures of CCRDN's experiments: a value over networks, with a line for each scheme."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft.experiments.report import style
from weft.experiments.report.claims import paper_values
from weft.experiments.report.figures import offsets
from weft.experiments.report.statistics import mean_and_error
from weft.experiments.runner.definition import Row, Table
from weft.topologies.core.grammar import parse

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# size of a legend entry: line and gaps, each letter, each row
LEGEND_MARK_INCHES = 0.6
LEGEND_LETTER_INCHES = 0.073
LEGEND_ROW_INCHES = 0.19
HATCHES = ("", "///", "...", "xxx")
FAMILY_LETTERS = {
    "dcell": "D",
    "beta-dcell": "β",
    "gamma-dcell": "γ",
    "delta-dcell": "δ",
    "ficonn": "F",
}
MeanAndError = tuple[float, float]


def network_label(topology: str) -> str:
    """Return a network as the paper writes it, such as D 3,4 for DCell_{3,4}."""
    family, parameters = parse(topology)
    letter = FAMILY_LETTERS.get(family, family)
    return f"{letter}$_{{{parameters['k']},{parameters['n']}}}$"


def family_and_depth(topology: str) -> tuple[int, str, int]:
    """Return family and depth of a network; sorts in the order of figures."""
    family, parameters = parse(topology)
    return [*FAMILY_LETTERS, family].index(family), family, int(parameters["k"])


def networks_in_order(table: Table) -> list[str]:
    """Return the networks of `table` by family, depth and size."""
    networks = {str(row["topology"]) for row in table}
    return sorted(networks, key=lambda spec: (*family_and_depth(spec), int(parse(spec)[1]["n"])))


class SchemeLine(NamedTuple):
    """The rows that one line of a figure shows, and how the line looks."""

    look: style.SeriesStyle
    dash: str
    rows: Table

    def mean(self, key: str, topology: str) -> MeanAndError | None:
        """Return mean and standard error of `key` on `topology`; None if no row has a value.

        The error is over the seeds.  With a single seed it is the row's own, from the column
        se_X of X or mean_X.
        """
        on_topology = [row for row in self.rows if row["topology"] == topology]
        rows = [row for row in on_topology if row.get(key) is not None]
        if not rows:
            return None
        mean, error = mean_and_error([float(str(row[key])) for row in rows])
        if len(rows) > 1:
            return mean, error
        own_error = rows[0].get("se_" + key.removeprefix("mean_")) or 0.0
        return mean, float(str(own_error))


LineValue = Callable[[SchemeLine, str], MeanAndError | None]


def scheme_lines(table: Table, *columns: str) -> list[SchemeLine]:
    """Return a line for each scheme and each combination of the varied `columns`."""
    varied = [column for column in columns if len({row[column] for row in table}) > 1]
    routings = style.in_order(str(row["routing"]) for row in table)
    looks = style.lines(routings)
    lines: list[SchemeLine] = []
    for routing in routings:
        groups: dict[tuple[object, ...], list[Row]] = {}
        for row in table:
            if row["routing"] == routing:
                groups.setdefault(tuple(row[column] for column in varied), []).append(row)
        for values, rows in groups.items():
            look, dash = distinct(looks[routing][0], style.scheme(routing).dash, lines)
            settings = [f"{style.words(a)} {b}" for a, b in zip(varied, values, strict=True)]
            label = ", ".join([look.label, *settings])
            lines.append(SchemeLine(look._replace(label=label), dash, rows))
    return lines


def distinct(
    look: style.SeriesStyle, dash: str, lines: Sequence[SchemeLine]
) -> tuple[style.SeriesStyle, str]:
    """Return `look` and `dash`, changed to differ from `lines` of the same colour."""
    variant = sum(line.look.colour == look.colour for line in lines)
    if variant == 0:
        return look, dash
    used = {line.look.marker for line in lines}
    marker = next((marker for marker in style.MARKERS if marker not in used), look.marker)
    return look._replace(marker=marker, variant=variant), style.another_dash(dash, variant)


def axes_by_network(
    figure: Figure, networks: Sequence[str], *, sharex: bool = False
) -> list[tuple[str, Axes]]:
    """Return axes for each network, one below the other."""
    figure.set_size_inches(6.4, 2.9 * len(networks))
    column = figure.subplots(len(networks), 1, squeeze=False, sharex=sharex)[:, 0]
    for axes, network in zip(column, networks, strict=True):
        axes.set_title(network_label(network))
    return list(zip(networks, column, strict=True))


def legend_above(figure: Figure, title: str = "") -> None:
    """Put one legend above all axes of `figure`, each label once; the figure grows by it."""
    entries: dict[str, Artist] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if not entries:
        return
    entry_inches = LEGEND_MARK_INCHES + LEGEND_LETTER_INCHES * max(map(len, entries))
    width, height = figure.get_size_inches()
    columns = min(max(1, int(width / entry_inches)), len(entries))
    rows = math.ceil(len(entries) / columns) + bool(title)
    figure.set_size_inches(width, height + LEGEND_ROW_INCHES * rows)
    figure.legend(
        handles=list(entries.values()),
        labels=list(entries),
        title=title or None,
        title_fontsize=8.5,
        alignment="left",
        ncols=columns,
        loc="outside upper left",
    )


def label_networks(axes: Axes, networks: Sequence[str], rotation: float = 0) -> None:
    """Label the x axis with `networks`."""
    labels = [network_label(network) for network in networks]
    axes.set_xticks(range(len(networks)), labels, rotation=rotation)


def points(
    line: SchemeLine, places: Sequence[tuple[float, str]], value: LineValue
) -> list[tuple[float, float, float]]:
    """Return (x, mean, error) of `line` on each network that has a value; places: (x, network)."""
    values = [(x, value(line, network)) for x, network in places]
    return [(x, *mean) for x, mean in values if mean is not None]


def draw_over_networks(
    axes: Axes,
    lines: Sequence[SchemeLine],
    networks: Sequence[str],
    value: LineValue,
    *,
    joined: bool = True,
) -> None:
    """Draw `value` of each line over the networks, with its error.

    Lines lie side by side, since many schemes are equal on some network.

    Args:
        joined: join the networks that differ in size only.
    """
    for line, shift in zip(lines, offsets(len(lines), 0.5), strict=True):
        label = line.look.label
        places = [(x + shift, network) for x, network in enumerate(networks)]
        for _, group in groupby(places, key=lambda place: family_and_depth(place[1])):
            visible = points(line, list(group), value)
            if not visible:
                continue
            x, y, error = zip(*visible, strict=True)
            form = line.look.marker + line.dash if joined else line.look.marker
            axes.errorbar(x, y, error, fmt=form, color=line.look.colour, label=label)
            label = ""
    label_networks(axes, networks, rotation=60)


def draw_column(axes: Axes, lines: Sequence[SchemeLine], networks: Sequence[str], key: str) -> None:
    """Draw the column `key` of each line over the networks."""
    draw_over_networks(axes, lines, networks, lambda line, network: line.mean(key, network))
    axes.set_ylabel(style.axis(key))


def bars_over_networks(
    axes: Axes, lines: Sequence[SchemeLine], networks: Sequence[str], key: str, scale: float = 1
) -> None:
    """Draw a bar of `scale` times the column `key` for each line and network.

    Lines of one scheme differ in hatching.
    """
    width = 0.8 / len(lines)
    for line, shift in zip(lines, offsets(len(lines), 0.8), strict=True):
        places = [(x + shift, network) for x, network in enumerate(networks)]
        visible = points(line, places, lambda line, network: line.mean(key, network))
        if not visible:
            continue
        x, y, error = np.array(visible).T
        axes.bar(
            x,
            scale * y,
            0.9 * width,
            yerr=scale * error if error.any() else None,
            color=line.look.colour,
            hatch=HATCHES[line.look.variant % len(HATCHES)],
            edgecolor=style.PAPER,
            label=line.look.label,
        )
    label_networks(axes, networks)


def paper_points(experiment: str, column: str, table: Table) -> list[tuple[Row, float]]:
    """Return the rows of `table` for which the paper prints a value of `column`, with the value."""
    return [
        (row, value)
        for where, value in paper_values("ccrdn", experiment, column)
        for row in table
        if all(row.get(key) == wanted for key, wanted in where.items())
    ]


def mark_paper(axes: Axes, table: Table, experiment: str, column: str) -> None:
    """Draw a cross where the paper's text gives a value of `column`."""
    networks = networks_in_order(table)
    crosses = {
        (networks.index(str(row["topology"])), value)
        for row, value in paper_points(experiment, column, table)
    }
    if crosses:
        x, y = zip(*sorted(crosses), strict=True)
        axes.plot(x, y, "x", color=style.INK, markersize=8, label="the paper's text", zorder=4)
