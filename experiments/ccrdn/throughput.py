"""How much traffic can a network carry under each scheme?  CCRDN, sections 6.5 and 7.3, figure 13.

F flows arrive over links of rate b.  The restricted aggregate throughput RAT, that of tightly
coupled tasks, is F b / (flows on the fullest link).  The unrestricted one, UAT, is F b / (mean
flows on a link).

Ours: flows are counted on each direction of a link, as in the authors' simulator.  The paper does
not say how large the groups of its many-all-to-all traffic are; `traffic` does.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from weft.experiments.ccrdn import columns
from weft.experiments.ccrdn.network_figures import (
    MeanAndError,
    SchemeLine,
    draw_over_networks,
    family_and_depth,
    legend_above,
    networks_in_order,
    scheme_lines,
)
from weft.experiments.ccrdn.recursive import (
    ROUTING,
    TOPOLOGY,
    check,
    check_work,
    routed_with_loads,
    traffic,
)
from weft.experiments.engines import common_parameters as common
from weft.experiments.report import style
from weft.experiments.report.statistics import mean_and_error
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table
from weft.topologies.core.grammar import parse
from weft.topologies.core.link import Gbps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# PR's gains over DR under uniform traffic, from the paper's text (figure 13)
PAPER = (
    "paper: UAT up to +30 % (k = 3) and below +5 % (k = 2, FiConn); RAT up to +55 %, "
    "less than DR on F$_{3,10}$"
)


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


def over_dr(table: Table, row: Row, key: str) -> float | None:
    """Return `key` of `row` over that of DR on the same network, traffic and seed.

    None if DR was not measured there.
    """
    same = ("topology", "traffic", "seed")  # DR tries no proxies, so `apply` does not matter
    for other in table:
        if other["routing"] == "dr" and all(other[column] == row[column] for column in same):
            return float(str(row[key])) / float(str(other[key]))
    return None


def gain(table: Table, key: str, line: SchemeLine, topology: str) -> MeanAndError | None:
    """Return mean and error over the seeds of `key` of `line` over DR's on `topology`."""
    rows = [row for row in line.rows if row["topology"] == topology]
    gains = [value for row in rows if (value := over_dr(table, row, key)) is not None]
    return mean_and_error(gains) if gains else None


def plot(table: Table, figure: Figure) -> None:
    """Draw figure 13: UAT and RAT of each scheme over those of DR, for each traffic."""
    patterns = sorted({str(row["traffic"]) for row in table})
    figure.set_size_inches(max(6.4, 4.6 * len(patterns)), 6.5)
    grid = figure.subplots(2, len(patterns), squeeze=False)
    for pattern, panels in zip(patterns, grid.T, strict=True):
        rows = [row for row in table if row["traffic"] == pattern]
        for axes, name in zip(panels, ("UAT", "RAT"), strict=True):
            draw_gains(axes, rows, f"{name.lower()}_bps")
            axes.set(title=f"{name}, {in_words(pattern)}", ylabel=f"{name} over that of DR")
    legend_above(figure, PAPER)


def in_words(traffic: str) -> str:
    """Return uniform:flows=10000000 as uniform, flows 10,000,000."""
    name, parameters = parse(traffic)
    return ", ".join([name, *(f"{key} {int(value):,}" for key, value in parameters.items())])


def draw_gains(axes: Axes, rows: Table, key: str) -> None:
    """Draw `key` of each scheme over DR's for each network, with errors over the seeds."""
    networks = networks_in_order(rows)
    lines = scheme_lines([row for row in rows if row["routing"] != "dr"], "apply")
    draw_over_networks(axes, lines, networks, partial(gain, rows, key), joined=False)
    axes.axhline(1, color=style.SCHEMES["dr"].colour, linewidth=1)
    families = [family_and_depth(network)[0] for network in networks]
    for x in range(1, len(networks)):
        if families[x] != families[x - 1]:
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
    seeds=1,
    version=3,
    takes_s=240,
    measure=measure,
    plot=plot,
    check=check_run,
)
