"""How large are the networks that FatPaths compares?  FatPaths, table IV, upper part, and the forms
of table V.

Counted on the network itself: routers, hosts, links of a router to others, the diameter and the
mean distance between routers with hosts.  as_table_v: whether routers, links of a router and
diameter are what the forms of table V say; hosts of a router, p, are a parameter, and
printed_hosts_of_router what the form says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.experiments.fatpaths import graph_columns
from weft.experiments.fatpaths.path_diversity import total_network_load
from weft.experiments.fatpaths.router_graph import RouterGraph
from weft.experiments.fatpaths.table_iv import (
    NETWORK,
    TABLE_IV,
    TABLE_V_SAMPLES,
    in_order,
    label,
    table_v,
)
from weft.experiments.report import style
from weft.experiments.runner.definition import Experiment, Result, Run, Table, Value
from weft.topologies import build

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEXTS = 2  # columns that are not numbers
MARKS = ("as_in_paper", "as_table_v")
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
    if form := table_v(topology.family, topology.parameters):
        routers, radix, hosts, diameter = form
        found = (graph.routers, graph.network_radix, graph.diameter if diameter else None)
        figures["as_table_v"] = found == (routers, radix, diameter)
        figures["printed_hosts_of_router"] = hosts
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
        numbers = [
            f"{row[key]:,}" if isinstance(row[key], int) else f"{row[key]:,.2f}" for key in COLUMNS
        ]
        marks = [{True: "yes", False: "NO"}[bool(row[key])] if key in row else "" for key in MARKS]
        cells.append([label(name) if name in TABLE_IV else "", name, *numbers, *marks])
    heads = ["", "topology", "D", "k'", "$N_r$", "N", "d", "TNL", "as table IV", "as table V"]
    widths = [0.08, 0.29, 0.05, 0.06, 0.07, 0.08, 0.07, 0.11, 0.1, 0.1]
    drawn = axes.table(cells, colLabels=heads, colWidths=widths, loc="center", edges="horizontal")
    for (_, column), cell in drawn.get_celld().items():
        cell.set_edgecolor(style.FAINT)
        cell.set_text_props(ha="left" if column < TEXTS else "right")
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(9)


EXPERIMENT = Experiment(
    name="lowdiameter_sizes",
    question="How large are the low-diameter networks that FatPaths compares?",
    source="FatPaths, tables IV and V",
    engines=("graph",),
    axes={"topology": NETWORK.over(*TABLE_IV, *TABLE_V_SAMPLES)},
    columns=graph_columns.SIZES,
    seeds=1,
    measure=measure,
    plot=plot,
    takes_s=3,
    must_hold=("as_in_paper", "as_table_v"),
)
