"""How are hop-lengths distributed, with and without failed links?  CCRDN, section 7.2, figures 7 to
9.

DR and PR with GP_I under uniform random traffic, on the whole network and with 10 % of its links
failed.  On FiConn odd lengths are the more frequent ones, since its routes alternate between
level-0 hops and others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.experiments.ccrdn import columns
from weft.experiments.ccrdn.recursive import (
    ROUTING,
    TOPOLOGY,
    check,
    faults,
    in_order,
    least_level,
    legend_above,
    routed,
    series,
    title,
    traffic,
)
from weft.experiments.engines import common_parameters as common
from weft.experiments.report import style
from weft.experiments.runner.definition import Experiment, Result, Run, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def check_run(run: Run) -> None:
    """ValueError for what there is not."""
    check(run)
    if run.text("routing") == "bfs":
        raise ValueError(
            "hop_histogram: bfs finds lengths from sampled sources only; take dr, pr-gpi, ..."
        )


def measure(run: Run) -> Result:
    """Which fraction of all pairs has a route of 0, 1, 2, ... hops; what is missing from 1 is not
    connected."""
    chosen = traffic(run, f"uniform:flows={run.integer('flows')}")
    found = routed(run, chosen, faults(run), least=least_level(run))
    return Result(
        figures={
            "pairs_by_hops_fraction": (found.hops / chosen.total).tolist(),
            "mean_hops": found.mean_hops,
            "longest_hops": len(found.hops) - 1 if found.connected else None,
            "connected_fraction": found.connected_fraction,
        }
    )


def plot(table: Table, figure: Figure) -> None:
    """A histogram for each network: the fraction of pairs over hops, for each scheme and fraction
    of failed links."""
    networks = in_order(table)
    figure.set_size_inches(6.4, 2.9 * len(networks))
    columns = figure.subplots(len(networks), 1, squeeze=False, sharex=True)[:, 0]
    for axes, network in zip(columns, networks, strict=True):
        rows = [row for row in table if row["topology"] == network]
        several = [
            key for key in ("failed", "apply", "flows") if len({str(row[key]) for row in rows}) > 1
        ]
        for line in series(rows, "failed_fraction", *several):
            by_hops: list[float] = line.rows[0]["pairs_by_hops_fraction"]  # type: ignore[assignment]
            first = line.rows[0]
            failed = f", {100 * float(str(first['failed_fraction'])):g} % failed"
            failed += "".join(f", {style.words(key)} {first[key]}" for key in several)
            edges = [hops - 0.5 for hops in range(len(by_hops) + 1)]
            look, label = line.look, line.look.label.partition(",")[0] + failed
            if not by_hops:
                # nothing is connected: the legend still says so
                edges, by_hops = [-0.5, 0.5], [0.0]
            axes.stairs(
                by_hops, edges, color=look.colour, linestyle=line.dash, linewidth=1.6, label=label
            )
        axes.set(title=title(network), ylabel="pairs (fraction)", xlim=(0, None), ylim=(0, None))
        axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel(style.axis("longest_hops", "hop-length"))
    legend_above(figure)


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
