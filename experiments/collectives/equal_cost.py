"""All-reduce on networks of the same total cost: which is first where.

Two sizes: 128 ranks on networks of 207,000 to 234,000 USD, and 256 ranks on networks of 502,000 to
570,000 USD, at the prices of topology_cost.  Where a family has no network of just so many hosts,
up to 27 of 155 are idle.  Xpander and Jellyfish are three graphs each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, isnan, nan
from statistics import mean
from typing import TYPE_CHECKING

from weft.experiments.report import style
from weft.experiments.report.claims import Sweep, Where
from weft.experiments.report.panels import name_rows, numbers, select
from weft.experiments.runner.definition import Row, Table, Value
from weft.experiments.runner.rows import grouped
from weft.topologies.core.grammar import parse
from weft.topologies.core.placement import LINEAR, RANDOM

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GRAPHS = (1, 2, 3)  # seeds of a random graph
NETWORKS = {
    128: (
        *("slimfly:q=4,p=4", "polarfly:q=5,p=5", "dragonfly:p=4,a=4,h=2,palm=0"),
        *("hyperx:l=3,s=3,p=5", "clos:n=8,r=16,m=6"),
    ),
    256: (
        *("polarfly:q=7,p=5", "dragonfly:p=4,a=4,h=4,palm=0", "hyperx:l=3,s=4,p=4"),
        *("clos:n=8,r=32,m=8", "fattree:k=8,oversubscription=2"),
    ),
}
RANDOM_NETWORKS = {
    128: ("xpander:r=6,l=4,p=5", "jellyfish:n=32,r=5,p=4"),
    256: ("xpander:r=7,l=8,p=4", "jellyfish:n=64,r=7,p=4"),
}
# UGAL has no detour on Clos and fat-tree, which are refused there.
CHOICES: tuple[Where, ...] = (
    {"scheme": ("rps", "drill", "ugal")},
    {"scheme": "fatpaths:trigger=cut,start=random", "transport": "ndp:choice=reps"},
)
PLACEMENTS: Where = {"placement": (LINEAR, RANDOM)}
ORDERS = ("rabenseifner", "rabenseifner-nearest")
SMALL, MIDDLE, LARGE = 1 << 16, 1 << 20, 1 << 26
# Cases by the number of ranks: algorithms, sizes, and seeds; of a random graph as many graphs.
CASES = {
    128: (
        (("recursive-doubling", *ORDERS), (SMALL,), 3),
        (("ring", *ORDERS), (MIDDLE,), 3),
        (("ring", *ORDERS), (LARGE,), 1),
    ),
    256: ((ORDERS, (SMALL, MIDDLE), 3),),
}
CASE = ("ranks", "placement", "algorithm", "size_bytes")
ALGORITHMS = {
    "recursive-doubling": "recursive doubling",
    "rabenseifner": "Rabenseifner, farthest first",
    "rabenseifner-nearest": "Rabenseifner, nearest first",
    "ring": "ring",
}
NAMES = {
    "slimfly": "Slim Fly",
    "polarfly": "PolarFly",
    "dragonfly": "Dragonfly",
    "hyperx": "HyperX",
    "clos": "Clos",
    "fattree": "fat-tree 2:1",
    "xpander": "Xpander",
    "jellyfish": "Jellyfish",
}
VARIED = ("topology", "scheme", "transport", *CASE)
ALIKE = 1.05  # ratios that are printed in bold
DARKEST = 3.0


def one_of_each(ranks: int) -> tuple[str, ...]:
    """Return the networks for so many ranks, with the first graph of random families."""
    return NETWORKS[ranks] + graphs_for(ranks)[: len(RANDOM_NETWORKS[ranks])]


def graphs_for(ranks: int) -> tuple[str, ...]:
    """Return the random graphs for so many ranks, all first graphs first."""
    return tuple(f"{spec},seed={seed}" for seed in GRAPHS for spec in RANDOM_NETWORKS[ranks])


def sweeps() -> Iterator[Sweep]:
    """Yield the runs of the study; a random graph has one seed of its own."""
    for ranks, cases in CASES.items():
        for algorithms, sizes, seeds in cases:
            graphs = graphs_for(ranks)[: seeds * len(RANDOM_NETWORKS[ranks])]
            case = {"ranks": ranks, "algorithm": algorithms, "size_bytes": sizes, **PLACEMENTS}
            for choice in CHOICES:
                yield Sweep("collectives", {"topology": NETWORKS[ranks], **case, **choice}, seeds)
                yield Sweep("collectives", {"topology": graphs, **case, **choice}, 1)


SWEEPS = tuple(sweeps())


def beside_fastest(table: Table) -> list[Row]:
    """Return for each case and family the time of its best choice over that of the fastest family.

    table: rows with the same settings but for cases, networks and choices.  A choice is a scheme
    with its transport; its time is the mean over seeds and graphs.
    """
    networks = {ranks: {*NETWORKS[ranks], *graphs_for(ranks)} for ranks in NETWORKS}
    rows = [
        row | {"family": family(row)}
        for row in table
        if row["topology"] in networks.get(row["ranks"], ())
    ]
    cells: list[Row] = []
    for case, own in grouped(rows, CASE).items():
        times_ms = {name: best_ms(each) for (name,), each in grouped(own, ("family",)).items()}
        least_ms = min(times_ms.values())
        about = dict(zip(CASE, case, strict=True))
        cells += [about | {"family": name, "ratio": ms / least_ms} for name, ms in times_ms.items()]
    return cells


def family(row: Row) -> str:
    """Return the family of a row's network, or how many planes it has."""
    name, options = parse(row["topology"])
    return f"{options['k']} planes" if name == "planes" else name


def best_ms(rows: Sequence[Row]) -> float:
    """Return the least mean time of a choice all of whose messages arrived; inf without one."""
    choices = grouped(rows, ("scheme", "transport")).values()
    ended = [own for own in choices if not any(row["unfinished"] for row in own)]
    return min((mean(numbers(own, "completion_ms")) for own in ended), default=inf)


def draw(table: Table, figure: Figure) -> None:
    """Draw a map: a line for each case, a column for each family, the fastest first."""
    parts = sorted(grouped(beside_fastest(table), ("ranks",)).items())
    maps = [grouped(cells, CASE) for _, cells in parts]
    heights = [2 + len(cases) for cases in maps]
    figure.set_size_inches(7.4, 0.23 * sum(heights))
    places = figure.subplots(len(parts), 1, squeeze=False, height_ratios=heights).flat
    for axes, ((ranks,), _), cases in zip(places, parts, maps, strict=True):
        by_case = sorted(cases.items(), key=lambda line: line[0][1:])
        draw_map(axes, {words(*case[1:]): own for case, own in by_case})
        axes.set_title(f"{ranks} ranks: time over that of the fastest network", fontsize=9)


def draw_map(axes: Axes, lines: Mapping[str, Sequence[Row]]) -> None:
    """Draw the cells of each line, by its title, with their ratios in figures.

    A cell has the `family` and the `ratio`, and perhaps `below`, a word under the ratio.
    """
    families = grouped([cell for own in lines.values() for cell in own], ("family",))
    names = sorted((name for (name,) in families), key=lambda name: mean_ratio(families[name,]))
    cells = [[select(own, family=name) for name in names] for own in lines.values()]
    ratios = [list(map(mean_ratio, own)) for own in cells]
    axes.imshow(ratios, cmap="Oranges", vmin=1, vmax=DARKEST, aspect="auto")
    for line, own in enumerate(cells):
        for column, cell in enumerate(own):
            write(axes, column, line, cell)
    name_rows(axes, list(lines))
    axes.set_xticks(range(len(names)), list(map(column_title, names)), fontsize=8.5)
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    axes.grid(visible=False)


def column_title(name: Value) -> str:
    """Return the name of a family, a word in each line."""
    return NAMES.get(str(name), str(name)).replace(" ", "\n")


def write(axes: Axes, column: int, line: int, cells: Sequence[Row]) -> None:
    """Write a ratio into its cell, in bold if it is about the least."""
    ratio = mean_ratio(cells)
    if not isnan(ratio):
        weight = "bold" if ratio < ALIKE else "normal"
        ink = style.PAPER if ratio > 0.8 * DARKEST else style.INK
        words = "\n".join(
            [f"{ratio:.2f}", *(cell["below"] for cell in cells[:1] if "below" in cell)]
        )
        text = axes.text(column, line, words, size=8, weight=weight, color=ink)
        text.set(ha="center", va="center")


def mean_ratio(cells: Sequence[Row]) -> float:
    """Return the mean ratio of `cells`; NaN without any."""
    return mean(numbers(cells, "ratio") or [nan])


def words(placement: object, algorithm: object, size_bytes: object) -> str:
    """Return the title of a case."""
    kib = int(str(size_bytes)) >> 10
    size = f"{kib} KiB" if kib < 1024 else f"{kib >> 10} MiB"
    return f"{placement}, {ALGORITHMS[str(algorithm)]}, {size}"
