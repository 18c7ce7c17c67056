"""Flows on each link: CCRDN, section 7.2, figures 10 to 12.

Uniform random traffic.  PR with GP_I takes, among the shortest routes, the one whose fullest link
carries the fewest flows (5.4).  On DCell and beta-DCell it uses the network less than DR and
relieves the fullest links.  On FiConn it does not: a proxy route crosses two of the scarce links of
the highest level.

Ours: flows are counted on each direction of a link, as in the authors' simulator, and idle links
are included.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from weft.experiments.ccrdn import columns
from weft.experiments.ccrdn.recursive import ROUTING, TOPOLOGY, check, routed_with_loads, uniform
from weft.experiments.engines import common_parameters as common
from weft.experiments.report.panels import Curves, exploded, number_of
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table

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


def by_flows(table: Table) -> Table:
    """Return a row for each bin of a histogram: its flows, and the fraction of links in it."""
    rows: list[Row] = []
    for row in table:
        bins: Any = row["links_by_flows"]
        fractions = {**row, "links_fraction": (np.array(bins) / sum(bins)).tolist()}
        width = number_of(row, "bin_flows")
        rows += exploded([fractions], ("links_fraction",), "flows_on_link", width)
    return rows


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
    plot=Curves(
        columns={"links_fraction": "directed links (fraction)"},
        x="flows_on_link",
        series="routing",
        facet=("topology", "flows", "apply"),
        rows=by_flows,
    ),
    check=partial(check, loads=True),
)
