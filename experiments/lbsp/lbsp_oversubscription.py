"""How long do long flows take in an oversubscribed fat-tree with a failed link?

LBSP, section 4, figure 7a: four flows from the pod with the failed link and one from another pod,
all to one pod, at ratios that slower links between aggregation and core switches make.  The paper
has k = 16; by default k = 8 here, since this takes a quarter of the switches.  fattree:k=16,pods=5
is the part of k = 16 that the flows can see: the pods up to the last that has one, and all core
switches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.daemons.lbsp.routing import shape_of
from weft.experiments.lbsp import columns, lbsp_tcp
from weft.experiments.runner.definition import Experiment, Result, Run, Table
from weft.topologies import build

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weft.testbed.traffic.flows import Flow

FLOWS = 5


def measure(run: Run) -> Result:
    """Times of all flows."""
    return lbsp_tcp.measure_repeated(run, traffic(run))


def check(run: Run) -> None:
    """As lbsp_tcp.check(); ValueError, too, where five flows to a pod have no host each."""
    lbsp_tcp.check(run)
    shape = shape_of(build(run.text("topology")))
    if shape.d * shape.hosts < FLOWS:
        raise ValueError(
            f"{run.experiment}: a pod must have {FLOWS} hosts, not {shape.d * shape.hosts}"
        )


def traffic(run: Run) -> list[Flow]:
    """Four flows from the edge switches of pod 2, the last of which has the damaged link, and one
    from pod 4.
    """
    from weft.testbed.traffic.flows import Flow

    topology = build(run.text("topology"))
    shape, number = shape_of(topology), topology.naming.layout.number_of
    d = shape.d
    sources = [(2, (d - 1 - at // 2) % d, at % 2) for at in range(4)] + [(4 % shape.pods, 0, 0)]
    sinks = [(1, at % d, at % 2 + at // d) for at in range(FLOWS)]
    begins = [at * run.integer("patience_s") for at in range(run.integer("repeats"))]
    return [
        Flow(float(at_s), number(src), number(dst), run.integer("flow_bytes"))
        for at_s in begins
        for src, dst in zip(sources, sinks, strict=True)
    ]


def plot(table: Table, figure: Figure) -> None:
    """Times over the ratio, with the failed link where there are such runs: the paper has no
    others.
    """
    failed = [row for row in table if row["damage"] == "link"]
    lbsp_tcp.plot(failed or table, figure, across="oversubscription")


EXPERIMENT = Experiment(
    name="lbsp_oversubscription",
    question="How long do long flows take under LBSP and packet scatter, with a failed link, the "
    "slower the core is?",
    source="LBSP, section 4, figure 7a",
    engines=("kernel",),
    axes={
        **lbsp_tcp.LONG_FLOWS,
        "damage": lbsp_tcp.LONG_FLOWS["damage"].over("none", "link"),
        "oversubscription": lbsp_tcp.OVERSUBSCRIPTION.over(1, 4, 8),
        "repeats": lbsp_tcp.REPEATS.over(2),
        "patience_s": lbsp_tcp.PATIENCE_S.over(15),
    },
    columns=columns.TIMES,
    seeds=3,
    version=2,
    takes_s=6500,
    measure=measure,
    plot=plot,
    check=check,
)
