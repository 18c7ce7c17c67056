"""Figures of flow_labels: bars, or a map of ways and networks where rows have LEAST networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

from weft.experiments.report import style
from weft.experiments.report.panels import Bars, name_rows, number_of, numbers, select
from weft.experiments.runner.definition import Row, Table
from weft.topologies.core.grammar import parse

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELS: Mapping[str, str] = {
    "ports": "ECMP",
    "prr": "PRR",
    "plb": "PLB, 3 rounds",
    "letflow": "LetFlow",
    "ugal": "UGAL",
    "layers": "layers, cuts",
    "gaps": "layers, gaps",
    "flowcut": "Flowcut",
    "presto": "Presto",
    "in-trees": "in-trees, cuts",
    "ecmp": "ECMP, heard",
    "fatpaths:trigger=cut,start=random": "layers, heard",
}
NETWORKS: Mapping[str, str] = {
    "clos": "Clos",
    "hyperx": "HyperX",
    "slimfly": "Slim Fly",
    "polarfly": "PolarFly",
    "jellyfish": "Jellyfish",
}
ENGINES = {"kernel": "Linux", "packet": "simulated"}
PLB_ROUNDS = 3
LEAST = 3
PALE = 1.3  # goodput of the darkest colour, so that black figures stay readable


class MapPanel(NamedTuple):
    """A panel of the map.

    title: of the panel.
    where: values of parameters of its rows.
    second: (row) -> the fraction that its cells have behind their goodput.
    """

    title: str
    where: Row
    second: Callable[[Row], float]


def stopped_fraction(row: Row) -> float:
    """Return the flows that stopped, of all."""
    return number_of(row, "stopped_flows") / number_of(row, "flows")


def slowest_fraction(row: Row) -> float:
    """Return the goodput of the slowest flow."""
    return number_of(row, "slowest_fraction")


PANELS = (
    MapPanel(
        "two links died: goodput (stopped flows), %",
        {"failed_links": 2, "pattern": "permutation", "rto_min_us": 10_000},
        stopped_fraction,
    ),
    MapPanel(
        "worst pairs: goodput (slowest flow), %",
        {"failed_links": 0, "pattern": "worst"},
        slowest_fraction,
    ),
)


BARS = Bars(
    columns={"goodput_fraction": "goodput of a flow / host's link"},
    strokes={"goodput_fraction": {"slowest_fraction": "slowest flow"}},
    by=("way", "plb_rounds"),
    facet=("topology", "pattern", "failed_links", "rto_min_us", "engine"),
)


def draw(table: Table, figure: Figure) -> None:
    """Draw the map if rows are enough for a panel of it, else bars."""
    if panels := panels_of(table):
        draw_map(panels, figure)
    else:
        BARS(table, figure)


def panels_of(table: Table) -> list[tuple[MapPanel, list[Row]]]:
    """Return the rows of each panel that has LEAST networks or more, of Linux and simulated."""
    panels = []
    for panel, (engine, words) in product(PANELS, ENGINES.items()):
        rows = shown(select(table, **panel.where, engine=engine))
        if len({row["topology"] for row in rows}) >= LEAST:
            panels.append((panel._replace(title=f"{words}, {panel.title}"), rows))
    return panels


def draw_map(panels: Sequence[tuple[MapPanel, Sequence[Row]]], figure: Figure) -> None:
    """Draw the panels, with a line for each way and a column for each network."""
    lines = [len(ways_of(rows)) for _, rows in panels]
    figure.set_size_inches(5.4, 0.7 * len(lines) + 0.27 * sum(lines))
    places = figure.subplots(len(panels), 1, squeeze=False, height_ratios=lines)
    for axes, (panel, rows) in zip(places.flat, panels, strict=True):
        draw_panel(axes, panel, rows)


def shown(rows: Table) -> list[Row]:
    """Return the rows of LABELS; of PLB those after PLB_ROUNDS rounds."""
    return [
        row
        for row in rows
        if row["way"] in LABELS and (row["way"] != "plb" or row["plb_rounds"] == PLB_ROUNDS)
    ]


def ways_of(rows: Table) -> list[str]:
    """Return the ways of `rows` in the order of LABELS."""
    return [way for way in LABELS if select(rows, way=way)]


def draw_panel(axes: Axes, panel: MapPanel, rows: Sequence[Row]) -> None:
    """Draw the cells of a panel, darker with more goodput."""
    ways = ways_of(rows)
    families = [name for name in NETWORKS if of_family(rows, name)]
    cells = [[of_family(select(rows, way=way), name) for name in families] for way in ways]
    goodputs = [[goodput(cell) for cell in line] for line in cells]
    axes.imshow(goodputs, cmap="Blues", vmin=0, vmax=PALE, aspect="auto")
    for line, own in enumerate(cells):
        for column, cell in enumerate(own):
            write(axes, column, line, panel, cell)
    name_rows(axes, [LABELS[way] for way in ways])
    axes.set_xticks(range(len(families)), [NETWORKS[name] for name in families], fontsize=9.5)
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    axes.grid(visible=False)
    axes.set_title(panel.title, fontsize=10)


def write(axes: Axes, column: int, line: int, panel: MapPanel, cell: Sequence[Row]) -> None:
    """Write the figures of a cell into it, if it has rows."""
    if cell:
        second = mean(panel.second(row) for row in cell)
        text = axes.text(column, line, f"{100 * goodput(cell):.0f} ({100 * second:.0f})")
        text.set(size=9.5, ha="center", va="center", color=style.INK)


def of_family(rows: Sequence[Row], family: str) -> list[Row]:
    """Return the rows on networks of `family`."""
    return [row for row in rows if parse(row["topology"])[0] == family]


def goodput(rows: Sequence[Row]) -> float:
    """Return the mean goodput of `rows`; NaN without any."""
    return mean(numbers(rows, "goodput_fraction") or [float("nan")])
