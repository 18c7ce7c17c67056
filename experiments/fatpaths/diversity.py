"""Do shortest paths fall short, and are there enough others?  FatPaths, figure 6 and table IV.

For pairs of routers with hosts: lengths and numbers of shortest paths (all pairs); CDP, the
disjoint paths of at most `hops` links; PI, what two pairs take from each other.  CDP and PI are
divided by k' and sampled; the interval of a mean is in the row.  hops=0 means the paper's d' for
networks of its table IV, and D + 1 for others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from weft.experiments.fatpaths import graph_columns, path_diversity
from weft.experiments.fatpaths.router_graph import RouterGraph
from weft.experiments.fatpaths.table_iv import NETWORK, TABLE_IV, colour, in_order, label
from weft.experiments.report import style
from weft.experiments.runner.definition import Experiment, Result, Run, Table, Value
from weft.experiments.runner.parameters import Integer
from weft.topologies import build

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_COUNTED = 10  # shortest paths; pairs with more are counted together
PANELS = (
    ("cdp_mean_fraction", "CDP, mean", "cdp", 0),
    ("cdp_tail_fraction", "CDP, 1 % tail", "cdp", 1),
    ("interference_mean_fraction", "PI, mean", "interference", 0),
    ("interference_tail_fraction", "PI, 99.9 % tail", "interference", 1),
)


def hops_of(run: Run, graph: RouterGraph) -> int:
    """The most links of a path that counts."""
    paper = TABLE_IV.get(run.text("topology"))
    return run.integer("hops") or (paper.hops if paper else graph.diameter + 1)


def measure(run: Run) -> Result:
    """Shares of pairs by length and number of shortest paths.

    Mean, tail and distribution of CDP and PI.
    """
    graph = RouterGraph.of(build(run.text("topology")))
    hops, rng = hops_of(run, graph), np.random.default_rng(run.seed)
    among = np.ix_(graph.endpoints, graph.endpoints)
    different = ~np.eye(len(graph.endpoints), dtype=bool)
    lengths = graph.distance[among][different].astype(np.int64)
    counts = np.minimum(graph.path_count[among][different], MOST_COUNTED)
    cdp = path_diversity.cdp(
        graph, path_diversity.random_pairs(graph, run.integer("pairs"), rng), hops
    )
    interference = path_diversity.interference(
        graph, path_diversity.random_fours(graph, run.integer("fours"), rng), hops
    )
    figures: dict[str, Value] = {
        "used_hops": hops,
        "radix": cdp.radix,
        "shortest_length_shares": shares(lengths),
        "shortest_count_shares": shares(counts),
        "one_shortest_fraction": float((counts == 1).mean()),
        "cdp_mean_fraction": cdp.mean_fraction,
        "cdp_mean_error_fraction": cdp.mean_error_fraction,
        "cdp_tail_fraction": cdp.quantile_fraction(0.01),
        "cdp_shares": shares(cdp.values),
        "interference_mean_fraction": interference.mean_fraction,
        "interference_mean_error_fraction": interference.mean_error_fraction,
        "interference_tail_fraction": interference.quantile_fraction(0.999),
        "interference_shares": shares(np.maximum(interference.values, 0)),
    }
    return Result(figures=figures)


def shares(values: NDArray[np.int64]) -> list[float]:
    """The share of `values` that are 0, 1, 2, ..."""
    found: list[float] = (np.bincount(values) / len(values)).tolist()
    return found


def plot(table: Table, figure: Figure) -> None:
    """Above, lengths and numbers of shortest paths.

    Below, CDP and PI beside the values that the paper prints.
    """
    rows = {str(row["topology"]): row for row in table}
    names = in_order(list(rows))
    figure.set_size_inches(10, 8.8)
    panels = figure.subplots(3, 2)
    lengths, counts = panels[0]
    draw_shares(
        lengths, rows, names, "shortest_length_shares", "length of shortest paths (links)", 5
    )
    draw_shares(
        counts,
        rows,
        names,
        "shortest_count_shares",
        f"number of shortest paths ({MOST_COUNTED}: or more)",
        11,
    )
    figure.legend(*lengths.get_legend_handles_labels(), loc="outside upper left", ncols=6)
    for axes, (key, title, column, which) in zip(panels[1:].ravel(), PANELS, strict=True):
        places = np.arange(len(names))
        ours = [100 * float(str(rows[name][key])) for name in names]
        axes.bar(places, ours, color=[colour(name) for name in names], width=0.7)
        known = [place for place, name in enumerate(names) if is_papers(rows[name])]
        axes.plot(
            known,
            [getattr(TABLE_IV[names[place]], column)[which] for place in known],
            "_",
            color=style.INK,
            ms=16,
            mew=1.6,
        )
        axes.set_xticks(
            places, [f"{label(name)}\n{rows[name]['used_hops']}" for name in names], fontsize=7.5
        )
        axes.set(title=f"{title} (% of k'), by links at most; a dash is the paper's", ylim=(0, 105))


def is_papers(row: dict[str, Value]) -> bool:
    """Whether table IV has the same."""
    paper = TABLE_IV.get(str(row["topology"]))
    return paper is not None and paper.hops == row["used_hops"]


def draw_shares(
    axes: Axes, rows: dict[str, dict[str, Value]], names: list[str], key: str, title: str, most: int
) -> None:
    """A line for each network: the share of pairs over what is counted."""
    for number, name in enumerate(names):
        found = rows[name][key]
        assert isinstance(found, list)
        values = [float(value) for value in found][:most]
        marker, dash = (
            style.MARKERS[number % len(style.MARKERS)],
            "--" if name.startswith("jellyfish") else "-",
        )
        axes.plot(
            range(1, len(values)),
            values[1:],
            dash,
            color=colour(name),
            marker=marker,
            label=label(name),
        )
    axes.set(title=title, ylabel="fraction of router pairs", ylim=(0, 1.03))
    axes.set_xticks(range(1, most))


EXPERIMENT = Experiment(
    name="diversity",
    question="How many shortest and other disjoint paths do low-diameter networks have, and how "
    "do pairs interfere?",
    source="FatPaths, table IV and figure 6",
    engines=("graph",),
    axes={
        "topology": NETWORK.over(*list(TABLE_IV)),
        "hops": Integer(
            meaning="most links of a path, 0: d' of table IV, or D + 1",
            unit="links",
            least=0,
            most=100,
        ).over(0),
        "pairs": Integer(
            meaning="sampled pairs of routers", unit="pairs", least=2, most=10_000_000
        ).over(10_000),
        "fours": Integer(
            meaning="sampled pairs of pairs", unit="pairs", least=2, most=10_000_000
        ).over(40_000),
    },
    columns=graph_columns.DIVERSITY,
    seeds=1,
    measure=measure,
    plot=plot,
    takes_s=110,
)
