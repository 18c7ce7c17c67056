"""How are hop-lengths distributed, with and without failed links?  CCRDN 7.2, figures 7 to 9.

DR and PR with GP_I under uniform random traffic, on the whole network and with 10 % of its links
failed.  On FiConn odd lengths are more frequent, because its routes alternate between level-0 hops
and others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.experiments.ccrdn import columns
from weft.experiments.ccrdn.network_figures import (
    SchemeLine,
    axes_by_network,
    legend_above,
    networks_in_order,
    scheme_lines,
)
from weft.experiments.ccrdn.recursive import ROUTING, TOPOLOGY, check, faults, routed, uniform
from weft.experiments.engines import common_parameters as common
from weft.experiments.report import style
from weft.experiments.runner.definition import Experiment, Result, Run, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def check_run(run: Run) -> None:
    """Raise ValueError for runs that the graph engine cannot do."""
    check(run)
    if run.text("routing") == "bfs":
        raise ValueError(
            "hop_histogram: bfs finds lengths from sampled sources only; take dr, pr-gpi, ..."
        )


def measure(run: Run) -> Result:
    """Measure the fraction of all pairs with a route of 0, 1, 2, ... hops.

    The fractions add up to that of the connected pairs.
    """
    flows = run.integer("flows")
    tally = routed(run, uniform(run, flows), faults(run))
    return Result(
        figures={
            "pairs_by_hops_fraction": (tally.hops / flows).tolist(),
            "mean_hops": tally.mean_hops,
            "longest_hops": len(tally.hops) - 1 if tally.connected else None,
            "connected_fraction": tally.connected_fraction,
        }
    )


def plot(table: Table, figure: Figure) -> None:
    """Draw a histogram for each network: pairs over hops, by scheme and failed fraction."""
    networks = networks_in_order(table)
    for network, axes in axes_by_network(figure, networks, sharex=True):
        rows = [row for row in table if row["topology"] == network]
        varied = [
            key for key in ("failed", "apply", "flows") if len({str(row[key]) for row in rows}) > 1
        ]
        for line in scheme_lines(rows, "failed_fraction", *varied):
            draw_histogram(axes, line, varied)
        axes.set(ylabel="pairs (fraction)", xlim=(0, None), ylim=(0, None))
        locator: Any = axes.xaxis.get_major_locator()
        locator.set_params(integer=True)
    axes.set_xlabel(style.axis("longest_hops", "hop-length"))
    legend_above(figure)


def draw_histogram(axes: Axes, line: SchemeLine, varied: list[str]) -> None:
    """Draw the histogram of one line; varied: columns that its label gives."""
    row: Any = line.rows[0]
    # without connected pairs an empty bar keeps the line in the legend
    by_hops = row["pairs_by_hops_fraction"] or [0.0]
    scheme = line.look.label.partition(",")[0]
    failed = f"{100 * float(row['failed_fraction']):g} % failed"
    settings = [f"{style.words(key)} {row[key]}" for key in varied]
    axes.stairs(
        by_hops,
        [hops - 0.5 for hops in range(len(by_hops) + 1)],
        color=line.look.colour,
        linestyle=line.dash,
        linewidth=1.6,
        label=", ".join([scheme, failed, *settings]),
    )


EXPERIMENT = Experiment(
    name="hop_histogram",
    question="How are hop-lengths distributed, with and without failed links?",
    source="CCRDN, section 7.2, figures 7 to 9",
    engines=("graph",),
    axes={
        "topology": TOPOLOGY.over("dcell:n=3,k=3", "beta-dcell:n=3,k=3", "ficonn:n=10,k=3"),
        "routing": ROUTING.over("dr", "pr-gpi"),
        "failed": common.FAILED.over("links"),
        "failed_fraction": common.FAILED_FRACTION.over(0.0, 0.1),
        "flows": common.FLOWS.over(10_000_000),
        "apply": common.APPLY.over("algorithm"),
    },
    columns=columns.HOP_HISTOGRAM,
    seeds=1,
    version=3,
    takes_s=95,
    measure=measure,
    plot=plot,
    check=check_run,
)
