"""How evenly does traffic load the links?  CCRDN, section 7.2, figures 10 to 12.

Uniform random traffic.  PR with GP_I takes, among the shortest routes, the one whose fullest link
carries the fewest flows (5.4).  On DCell and beta-DCell it uses the network less than DR and
relieves the fullest links.  On FiConn it does not: a proxy route crosses two of the scarce links of
the highest level.

Ours: flows are counted on each direction of a link, as in the authors' simulator, and idle links
are included.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.experiments.ccrdn import columns
from weft.experiments.ccrdn.network_figures import (
    SchemeLine,
    axes_by_network,
    legend_above,
    networks_in_order,
    scheme_lines,
)
from weft.experiments.ccrdn.recursive import ROUTING, TOPOLOGY, check, routed_with_loads, uniform
from weft.experiments.engines import common_parameters as common
from weft.experiments.runner.definition import Experiment, Result, Run, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BINS_OF_A_MEAN = 25


def measure(run: Run) -> Result:
    """Measure the histogram of flows on directed links, in the same bins for all schemes."""
    flows = run.integer("flows")
    _, loads = routed_with_loads(run, uniform(run, flows))
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
    """Draw a histogram for each network: directed links over flows, by scheme."""
    for network, axes in axes_by_network(figure, networks_in_order(table)):
        rows = [row for row in table if row["topology"] == network]
        for line in scheme_lines(rows, "flows", "apply"):
            draw_histogram(axes, line)
        axes.set(ylabel="directed links (fraction)", ylim=(0, None), xlim=(0, None))
    axes.set_xlabel("flows on a directed link")
    legend_above(figure)


def draw_histogram(axes: Axes, line: SchemeLine) -> None:
    """Draw the histogram of one line, and a mark at its fullest link."""
    row: Any = line.rows[0]
    colour = line.look.colour
    links = np.array(row["links_by_flows"])
    axes.stairs(
        links / links.sum(),
        np.arange(len(links) + 1) * row["bin_flows"],
        linestyle=line.dash,
        linewidth=1.6,
        color=colour,
        label=line.look.label,
    )
    bottleneck = row["bottleneck_flows"]
    axes.plot(bottleneck, 0, line.look.marker, color=colour, clip_on=False, zorder=4)
    axes.annotate(
        f"fullest {bottleneck:,}",
        (bottleneck, 0),
        xytext=(0, 6),
        textcoords="offset points",
        rotation=70,
        fontsize=7,
        color=colour,
    )


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
    check=partial(check, loads=True),
)
