"""How large are the networks that FatPaths compares?  FatPaths, table IV, upper part.

Counted on the network itself: routers, hosts, links of a router to others, the diameter and the mean distance between
routers with hosts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.fatpaths.networks import NETWORK, TABLE_IV, in_order, label
from experiments.figures import style
from experiments.graph_engine.diversity import total_network_load
from experiments.graph_engine.router_graph import RouterGraph
from experiments.runner.definition import Experiment, Result, Run, Table, Value
from topologies import build

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = ("diameter", "radix", "routers", "hosts", "mean_hops", "total_network_load")


def measure(run: Run) -> Result:
    """The columns of table IV, whether they are the paper's, the mean distance and TNL."""
    topology = build(run.text("topology"))
    graph = RouterGraph.of(topology)
    figures: dict[str, Value] = {
        "diameter": graph.diameter,
        "radix": graph.network_radix,
        "routers": graph.routers,
        "hosts": topology.servers,
        "router_links": graph.edges,
        "mean_hops": graph.mean_distance,
        "total_network_load": total_network_load(graph),
    }
    paper = TABLE_IV.get(run.text("topology"))
    if paper and paper.routers is not None:
        printed = (paper.diameter, paper.radix, paper.routers, paper.hosts)
        figures["as_in_paper"] = printed == tuple(figures[key] for key in COLUMNS[:4])
    return Result(figures=figures)


def plot(table: Table, figure: Figure) -> None:
    """The table, with a mark where the paper prints the same."""
    rows = {str(row["topology"]): row for row in table}
    figure.set_size_inches(9.5, 0.6 + 0.24 * len(rows))
    axes = figure.add_subplot()
    axes.axis("off")
    cells = []
    for name in in_order(list(rows)):
        row = rows[name]
        numbers = [f"{row[key]:.4g}" if isinstance(row[key], float) else str(row[key]) for key in COLUMNS]
        mark = {True: "yes", False: "NO"}.get(bool(row["as_in_paper"]), "") if "as_in_paper" in row else "not printed"
        cells.append([label(name), name, *numbers, mark])
    heads = ["", "topology", "D", "k'", "$N_r$", "N", "d", "TNL", "as in the paper"]
    widths = [0.08, 0.32, 0.05, 0.06, 0.07, 0.08, 0.08, 0.09, 0.15]
    drawn = axes.table(cells, colLabels=heads, colWidths=widths, loc="center", edges="horizontal")
    for cell in drawn.get_celld().values():
        cell.set_edgecolor(style.FAINT)
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(9)


EXPERIMENT = Experiment(
    name="lowdiameter_sizes",
    question="How large are the low-diameter networks that FatPaths compares?",
    source="FatPaths, table IV",
    engines=("graph",),
    sweep={"topology": list(TABLE_IV)},
    parameters={"topology": NETWORK},
    seeds=1,
    measure=measure,
    plot=plot,
    must_hold=("as_in_paper",),
)
