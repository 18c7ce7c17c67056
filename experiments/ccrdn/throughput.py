"""How much traffic can a network carry under each scheme?  CCRDN, sections 6.5 and 7.3, figure 13.

With F flows that arrive and links of rate b, the restricted aggregate throughput RAT is F b /
(flows on the fullest link), what tightly coupled tasks get; the unrestricted one, UAT, is F b /
(mean flows on a link).

Ours: flows are counted on each direction of a link, as the authors' simulator does.  The paper does
not say how large the groups of its many-all-to-all traffic are; `traffic` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.experiments.ccrdn import columns
from weft.experiments.ccrdn.recursive import (
    ROUTING,
    TOPOLOGY,
    check,
    check_work,
    in_order,
    kind,
    least_level,
    legend_above,
    routed,
    series,
    title,
    traffic,
)
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.graph import graph
from weft.experiments.report import style
from weft.experiments.report.statistics import mean_and_error
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Statement, Table
from weft.topologies.core.grammar import parse
from weft.topologies.core.link import Gbps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What the paper's text says that PR gains over DR, uniform traffic (figure 13).
PAPER = (
    "paper: UAT up to +30 % (k = 3) and below +5 % (k = 2, FiConn); RAT up to +55 %, "
    "less than DR on F$_{3,10}$"
)


def check_run(run: Run) -> None:
    """ValueError for what there is not."""
    check(run, loads=True)
    if run.text("routing") == "bfs":
        raise ValueError(
            "throughput: bfs finds lengths, and no routes to count flows on; take dr, pr-gpi, ..."
        )
    check_work(run, traffic(run, run.text("traffic")).total)


def measure(run: Run) -> Result:
    """Both throughputs, and the loads that they come from: those of all flows, also as far as lost
    ones get, while only the flows that arrive count as throughput."""
    net, chosen = graph(run.text("topology")), traffic(run, run.text("traffic"))
    found = routed(run, chosen, least=least_level(run), loads=True)
    assert found.loads is not None
    loads = found.loads[net.wired]
    mean, most, delivered = float(loads.mean()), int(loads.max()), found.connected
    return Result(
        figures={
            "uat_bps": delivered * Gbps / mean if delivered else 0.0,
            "rat_bps": delivered * Gbps / most if delivered else 0.0,
            "mean_flows": mean,
            "bottleneck_flows": most,
            "routed_flows": chosen.total,
            "delivered_flows": delivered,
            "mean_hops": found.mean_hops,
        }
    )


def over_dr(table: Table, row: Row, key: str) -> float | None:
    """`key` of `row` over that of DR on the same network, traffic and seed; None if DR was not
    measured there."""
    same = ("topology", "traffic", "seed")  # DR tries no proxies, whatever is applied
    for other in table:
        if other["routing"] == "dr" and all(other[column] == row[column] for column in same):
            return float(str(row[key])) / float(str(other[key]))
    return None


def plot(table: Table, figure: Figure) -> None:
    """Figure 13: UAT and RAT of each scheme over those of DR, for each kind of traffic."""
    kinds = sorted({str(row["traffic"]) for row in table})
    figure.set_size_inches(max(6.4, 4.6 * len(kinds)), 6.5)
    for column, axes_of_kind in enumerate(figure.subplots(2, len(kinds), squeeze=False).T):
        rows = [row for row in table if row["traffic"] == kinds[column]]
        for axes, key, name in zip(
            axes_of_kind, ("uat_bps", "rat_bps"), ("UAT", "RAT"), strict=True
        ):
            gains(axes, rows, key)
            axes.set(title=f"{name}, {in_words(kinds[column])}", ylabel=f"{name} over that of DR")
    legend_above(figure, PAPER)


def in_words(traffic: str) -> str:
    """uniform:flows=10000000 as uniform, flows 10,000,000."""
    name, given = parse(traffic)
    return ", ".join([name, *(f"{key} {int(value):,}" for key, value in given.items())])


def gains(axes: Axes, rows: Table, key: str) -> None:
    """`key` of each scheme over DR's, for each network; errors are those over the seeds."""
    networks = in_order(rows)
    lines = series([row for row in rows if row["routing"] != "dr"], "apply")
    for place, line in enumerate(lines):
        label, shift = line.look.label, (place - (len(lines) - 1) / 2) * 0.5 / len(lines)
        for x, network in enumerate(networks):
            values = [over_dr(rows, row, key) for row in line.rows if row["topology"] == network]
            known = [value for value in values if value is not None]
            if known:
                mean, error = mean_and_error(known)
                axes.errorbar(
                    x + shift,
                    mean,
                    error,
                    fmt=line.look.marker,
                    color=line.look.colour,
                    label=label,
                )
                label = ""
    axes.axhline(1, color=style.SCHEMES["dr"].colour, linewidth=1)
    axes.set_xticks(range(len(networks)), [title(network) for network in networks], rotation=60)
    for x in range(1, len(networks)):
        if kind(networks[x])[0] != kind(networks[x - 1])[0]:
            axes.axvline(x - 0.5, color=style.FAINT, linewidth=1)


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
    statements=[
        Statement(
            says="GP_I carries up to 55 % more than DR on beta-DCell (figure 13)",
            paper="1.55 at best",
            column="rat_bps",
            cell={"topology": "beta-dcell:n=3,k=3", "routing": "pr-gpi"},
            over={"routing": "dr"},
        ),
    ],
    seeds=1,
    version=3,
    takes_s=240,
    measure=measure,
    plot=plot,
    check=check_run,
)
