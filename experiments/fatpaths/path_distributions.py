"""How are the numbers of disjoint paths, and path interference, distributed over pairs of routers?
FatPaths, figures 7 and 8.

The same counts as in `diversity`, for several lengths l, each network beside the Jellyfish of the
same routers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.experiments.fatpaths import diversity, graph_columns
from weft.experiments.fatpaths.table_iv import TABLE_IV, label
from weft.experiments.report import style
from weft.experiments.runner.definition import Experiment, Table, Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MEASURES = (("cdp_shares", "disjoint paths, CDP"), ("interference_shares", "path interference, PI"))
LEAST_SHARE = 1e-4  # drawn; a sample of some thousand shows no less
# each of its pairs has k' paths of 2 links
NETWORKS = [name for name in TABLE_IV if not name.startswith("complete")]


def plot(table: Table, figure: Figure) -> None:
    """A column for each network, above its disjoint paths and below its interference, as fractions
    of k'; colours tell the length, and dashes the Jellyfish.
    """
    kinds: dict[str, list[dict[str, Value]]] = {}
    for row in table:
        kinds.setdefault(label(str(row["topology"])).removesuffix("-JF"), []).append(row)
    lengths = sorted({int(str(row["used_hops"])) for row in table})
    colours = dict(zip(lengths, style.SEVERAL, strict=False))
    figure.set_size_inches(2.7 * len(kinds) + 0.8, 5.6)
    panels = figure.subplots(2, len(kinds), squeeze=False, sharey="row")
    for column, (kind, rows) in enumerate(kinds.items()):
        for axes, (key, title) in zip(panels[:, column], MEASURES, strict=True):
            draw(axes, rows, key, colours)
            axes.set(
                yscale="log", ylim=(LEAST_SHARE, 1.5), xlim=(-2, 103), xlabel=f"{title} (% of k')"
            )
        panels[0, column].set_title(kind)
    for axes in panels[:, 0]:
        axes.set_ylabel("share of samples")
    handles = [axes.plot([], [], color=colour)[0] for colour in colours.values()]
    handles += [axes.plot([], [], dash, color=style.INK)[0] for dash in ("-", "--")]
    names = [*(f"l = {hops}" for hops in colours), "network", "its Jellyfish"]
    figure.legend(handles, names, loc="outside upper left", ncols=len(names))


def draw(axes: Axes, rows: list[dict[str, Value]], key: str, colours: dict[int, str]) -> None:
    """A line for each network and length, with gaps where no sample is: the classes of pairs are
    seen.
    """
    for row in sorted(rows, key=lambda row: int(str(row["used_hops"]))):
        shares = row[key]
        assert isinstance(shares, list)
        share = np.array([float(value) for value in shares])
        percent = 100 * np.arange(len(share)) / float(str(row["radix"]))
        random = str(row["topology"]).startswith("jellyfish")
        axes.plot(
            percent,
            np.where(share >= LEAST_SHARE, share, np.nan),
            "--" if random else "-",
            color=colours[int(str(row["used_hops"]))],
            marker="" if random else ".",
            markersize=6,
            linewidth=1.1,
        )


EXPERIMENT = Experiment(
    name="path_distributions",
    question="How are disjoint paths and path interference distributed over pairs of routers, by "
    "the length of paths?",
    source="FatPaths, figures 7 and 8",
    engines=("graph",),
    axes={
        **diversity.EXPERIMENT.axes,
        "topology": diversity.EXPERIMENT.axes["topology"].over(*NETWORKS),
        "hops": diversity.EXPERIMENT.axes["hops"].over(2, 3, 4),
        "pairs": diversity.EXPERIMENT.axes["pairs"].over(4_000),
        "fours": diversity.EXPERIMENT.axes["fours"].over(1_000),
    },
    columns=graph_columns.DIVERSITY,
    seeds=1,
    measure=diversity.measure,
    plot=plot,
    takes_s=30,
)
