"""Traffic that a network carries under each scheme: CCRDN, sections 6.5 and 7.3, figure 13.

F flows arrive over links of rate b.  The restricted aggregate throughput RAT, that of tightly
coupled tasks, is F b / (flows on the fullest link).  The unrestricted one, UAT, is F b / (mean
flows on a link).

Ours: flows are counted on each direction of a link, as in the authors' simulator.  The paper does
not say how large the groups of its many-all-to-all traffic are; `traffic` does.
"""

from __future__ import annotations

from functools import partial

from weft.experiments.ccrdn import columns
from weft.experiments.ccrdn.recursive import (
    ROUTING,
    TOPOLOGY,
    check,
    check_work,
    routed_with_loads,
    traffic,
)
from weft.experiments.engines import common_parameters as common
from weft.experiments.report.panels import Bars, relative
from weft.experiments.runner.definition import Experiment, Result, Run
from weft.topologies.core.link import Gbps


def check_run(run: Run) -> None:
    """Raise ValueError for runs that the graph engine cannot do."""
    check(run, loads=True)
    check_work(run, traffic(run, run.text("traffic")).total)


def measure(run: Run) -> Result:
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
        figures={
            "uat_bps": delivered * Gbps / mean if delivered else 0.0,
            "rat_bps": delivered * Gbps / most if delivered else 0.0,
            "mean_flows": mean,
            "bottleneck_flows": most,
            "routed_flows": pairs.total,
            "delivered_flows": delivered,
            "mean_hops": tally.mean_hops,
        }
    )


EXPERIMENT = Experiment(
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
    columns=columns.THROUGHPUT,
    seeds=1,
    version=3,
    takes_s=240,
    measure=measure,
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
