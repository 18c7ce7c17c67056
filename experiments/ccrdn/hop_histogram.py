"""Hop-lengths of all pairs, with and without failed links: CCRDN 7.2, figures 7 to 9.

DR and PR with GP_I under uniform random traffic, on the whole network and with 10 % of its links
failed.  On FiConn odd lengths are more frequent, because its routes alternate between level-0 hops
and others.
"""

from __future__ import annotations

from functools import partial

from weft.experiments.ccrdn import columns
from weft.experiments.ccrdn.recursive import ROUTING, TOPOLOGY, check, faults, routed, uniform
from weft.experiments.engines import common_parameters as common
from weft.experiments.report.panels import Curves, exploded
from weft.experiments.runner.definition import Experiment, Result, Run


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
    plot=Curves(
        columns={"pairs_by_hops_fraction": "pairs (fraction)"},
        x="hops",
        series="routing",
        dash="failed_fraction",
        facet=("topology", "failed", "flows", "apply"),
        rows=partial(exploded, columns=("pairs_by_hops_fraction",), index="hops"),
    ),
    check=check_run,
)
