"""How evenly does traffic load the links?  CCRDN, section 7.2, figures 10 to 12.

Uniform random traffic; PR with GP_I takes, among the shortest routes, the one whose fullest link
carries the fewest flows (5.4).  It uses the network less than DR and relieves its fullest links on
DCell and beta-DCell; on FiConn, where a proxy route crosses two of the scarce links of the highest
level, it does not.

Ours: flows are counted on each direction of a link, as the authors' simulator does, and idle ones
are not left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.experiments.ccrdn import columns
from weft.experiments.ccrdn.recursive import (
    ROUTING,
    TOPOLOGY,
    check,
    in_order,
    least_level,
    legend_above,
    routed,
    series,
    title,
    traffic,
)
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.graph import graph
from weft.experiments.runner.definition import Experiment, Result, Run, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS_OF_A_MEAN = 25


def check_run(run: Run) -> None:
    """ValueError for what there is not."""
    check(run, loads=True)
    if run.text("routing") == "bfs":
        raise ValueError(
            "flow_histogram: bfs finds lengths, and no routes to count flows on; take dr, "
            "pr-gpi, ..."
        )


def measure(run: Run) -> Result:
    """How many directed links carry how many flows, in bins that are the same for all schemes; mean
    and greatest."""
    net, flows = graph(run.text("topology")), run.integer("flows")
    found = routed(run, traffic(run, f"uniform:flows={flows}"), least=least_level(run), loads=True)
    assert found.loads is not None
    loads = found.loads[net.wired]
    bin_flows = max(1, 10 * flows // (BINS_OF_A_MEAN * len(loads)))
    return Result(
        figures={
            "links_by_flows": np.bincount(loads // bin_flows).tolist(),
            "bin_flows": bin_flows,
            "mean_flows": float(loads.mean()),
            "bottleneck_flows": int(loads.max()),
            "p99_flows": float(np.quantile(loads, 0.99)),
            "idle_fraction": float((loads == 0).mean()),
        }
    )


def plot(table: Table, figure: Figure) -> None:
    """A histogram for each network: directed links over flows, for each scheme."""
    networks = in_order(table)
    figure.set_size_inches(6.4, 2.9 * len(networks))
    for axes, network in zip(
        figure.subplots(len(networks), 1, squeeze=False)[:, 0], networks, strict=True
    ):
        for line in series([row for row in table if row["topology"] == network], "flows", "apply"):
            row = line.rows[0]
            links, width = np.array(row["links_by_flows"]), int(str(row["bin_flows"]))
            bottleneck = int(str(row["bottleneck_flows"]))
            edges = np.arange(len(links) + 1) * width
            dash, colour = line.dash, line.look.colour
            axes.stairs(
                links / links.sum(),
                edges,
                linestyle=dash,
                linewidth=1.6,
                color=colour,
                label=line.look.label,
            )
            axes.plot(bottleneck, 0, line.look.marker, color=colour, clip_on=False, zorder=4)
            above = {
                "xytext": (0, 6),
                "textcoords": "offset points",
                "rotation": 70,
                "fontsize": 7,
                "color": colour,
            }
            axes.annotate(f"fullest {bottleneck:,}", (bottleneck, 0), **above)
        axes.set(
            title=title(network), ylabel="directed links (fraction)", ylim=(0, None), xlim=(0, None)
        )
    axes.set_xlabel("flows on a directed link")
    legend_above(figure)


EXPERIMENT = Experiment(
    name="flow_histogram",
    question="How evenly does traffic load the links?",
    source="CCRDN, section 7.2, figures 10 to 12",
    engines=("graph",),
    axes={
        "topology": TOPOLOGY.over("dcell:n=3,k=3", "beta-dcell:n=3,k=3", "ficonn:n=10,k=3"),
        "routing": ROUTING.over("dr", "pr-gpi"),
        "flows": common.FLOWS.over(10_000_000),
        "apply": common.APPLY.over("algorithm"),
    },
    columns=columns.FLOW_HISTOGRAM,
    seeds=1,
    version=3,
    takes_s=9,
    measure=measure,
    plot=plot,
    check=check_run,
)
