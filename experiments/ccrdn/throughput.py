"""Flows on each link, and the traffic that a network carries.

Flows are counted on each direction of a link, as in the authors' simulator, idle links included.

Figures 10 to 12 (section 7.2) have the flows under uniform random traffic.  PR with GP_I takes,
among the shortest routes, the one whose fullest link carries the fewest flows (5.4).  On DCell and
beta-DCell it uses the network less than DR and relieves the fullest links.  On FiConn it does not:
a proxy route crosses two of the scarce links of the highest level.

Figure 13 (sections 6.5 and 7.3) has the traffic under each scheme.  F flows arrive over links of
rate b.  The restricted aggregate throughput RAT, that of tightly coupled tasks, is F b / (flows on
the fullest link).  The unrestricted one, UAT, is F b / (mean flows on a link).

The paper does not say how large the groups of its many-all-to-all traffic are; `traffic` does.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from weft.experiments.ccrdn.recursive import (
    ROUTING,
    TOPOLOGY,
    check,
    check_work,
    routed_with_loads,
    traffic,
    uniform,
)
from weft.experiments.engines import common_parameters as common
from weft.experiments.report.panels import Bars, Curves, exploded, relative
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table
from weft.topologies.core.link import Gbps

BINS_OF_A_MEAN = 25


LOAD_COLUMNS = {
    "mean_flows": "flows on a directed link, mean",
    "bottleneck_flows": "flows on the fullest directed link",
}


def measure_histogram(run: Run) -> Result:
    """Measure the histogram of flows on directed links, in the same bins for all schemes."""
    flows = run.integer("flows")
    _, loads = routed_with_loads(run, uniform(run, flows))
    bin_flows = max(1, 10 * flows // (BINS_OF_A_MEAN * len(loads)))
    return Result(
        {
            "links_by_flows": np.bincount(loads // bin_flows).tolist(),
            "bin_flows": bin_flows,
            "mean_flows": loads.mean(),
            "bottleneck_flows": loads.max(),
            "p99_flows": np.quantile(loads, 0.99),
            "idle_fraction": (loads == 0).mean(),
        }
    )


def by_flows(table: Table) -> Table:
    """Return a row for each bin of a histogram: its flows, and the fraction of links in it."""
    rows: list[Row] = []
    for row in table:
        bins: Any = row["links_by_flows"]
        fractions = {**row, "links_fraction": (np.array(bins) / sum(bins)).tolist()}
        width = row["bin_flows"]
        rows += exploded([fractions], ("links_fraction",), "flows_on_link", width)
    return rows


FLOW_HISTOGRAM = Experiment(
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
    columns={
        "links_by_flows": (
            "list: how many directed links carry 0 .. b-1, b .. 2b-1, ... flows, b being bin_flows"
        ),
        "bin_flows": "width of a bin of links_by_flows",
        **LOAD_COLUMNS,
        "p99_flows": "99th percentile over directed links of their flows",
        "idle_fraction": "directed links without a flow",
    },
    seeds=1,
    version=3,
    takes_s=9,
    measure=measure_histogram,
    plot=Curves(
        columns={"links_fraction": "directed links (fraction)"},
        x="flows_on_link",
        series="routing",
        facet=("topology", "flows", "apply"),
        rows=by_flows,
    ),
    check=partial(check, loads=True),
)


def check_run(run: Run) -> None:
    """Raise ValueError for runs that the graph engine cannot do."""
    check(run, loads=True)
    check_work(run, traffic(run, run.text("traffic")).total)


def measure_throughput(run: Run) -> Result:
    """Measure both throughputs, and the link loads that they follow from.

    Loads are those of all flows, lost ones as far as they get; only flows that arrive count as
    throughput.
    """
    pairs = traffic(run, run.text("traffic"))
    tally, loads = routed_with_loads(run, pairs)
    mean = float(loads.mean())
    most = int(loads.max())
    delivered = tally.connected
    return Result(
        {
            "uat_bps": delivered * Gbps / mean if delivered else 0.0,
            "rat_bps": delivered * Gbps / most if delivered else 0.0,
            "mean_flows": mean,
            "bottleneck_flows": most,
            "routed_flows": pairs.total,
            "delivered_flows": delivered,
            "mean_hops": tally.mean_hops,
        }
    )


THROUGHPUT = Experiment(
    name="throughput",
    question="How much traffic can a network carry under each scheme?",
    source="CCRDN, sections 6.5 and 7.3, figure 13",
    engines=("graph",),
    axes={
        "topology": TOPOLOGY.over(
            *("dcell:n=18,k=2", "dcell:n=3,k=3", "dcell:n=4,k=3"),
            *("beta-dcell:n=18,k=2", "beta-dcell:n=3,k=3", "beta-dcell:n=4,k=3"),
            *("ficonn:n=36,k=2", "ficonn:n=10,k=3"),
        ),
        "routing": ROUTING.over("dr", "pr-gp0", "pr-gpi", "pr-gpe"),
        "traffic": common.TRAFFIC.over(
            "uniform:flows=10000000", "many-all-to-all:group=50", "one-to-all"
        ),
        "apply": common.APPLY.over("algorithm"),
    },
    columns={
        "uat_bps": (
            "throughput of all flows if links were loaded alike: delivered flows x 1 "
            "Gbit/s / mean_flows (UAT)"
        ),
        "rat_bps": (
            "throughput of all flows if all get what the most loaded link gives: ... / "
            "bottleneck_flows (RAT)"
        ),
        **LOAD_COLUMNS,
        "routed_flows": "flows of the traffic",
        "delivered_flows": "flows that have a route",
        "mean_hops": "mean length of their routes",
    },
    seeds=1,
    version=3,
    takes_s=240,
    measure=measure_throughput,
    plot=Bars(
        columns={"uat_bps": "UAT over that of DR", "rat_bps": "RAT over that of DR"},
        by=("routing",),
        facet=("topology", "apply"),
        across="traffic",
        baseline=1,
        rows=partial(
            relative,
            columns=("uat_bps", "rat_bps"),
            over={"routing": "dr"},
            same=("topology", "traffic", "seed"),
        ),
    ),
    check=check_run,
)
