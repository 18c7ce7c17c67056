"""When links die, which pairs stay connected, and how much longer are their routes?  CCRDN, sections 6.4 and 7.2.

Figures 5 and 6: 10 % of the links have failed, drawn uniformly.  A scheme connects a pair if one of the routes that
it tries is alive; PR takes the shortest of these.  Shortest paths show what is physically there.  A fault set is one
sample: the error of a figure is that over the seeds.

What differs from the paper.  Its hop-lengths for DCell_{3,4} under faults, 10.7 for GP_I against 10.2 for DR without,
are those of DCell_{3,3}.  Its simulator draws faults by node and port, and stops at a link that is dead in one
direction only. DFR's 95 % and 14 hops are interpolated from its own paper, as the authors say.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from experiments.ccrdn.recursive import (
    Paper,
    beside,
    check,
    draw_over_networks,
    faults,
    in_order,
    least_level,
    mark_paper,
    mean_and_error,
    routed,
    series,
    shortest,
    traffic,
)
from experiments.graph_engine.graph import Tally, graph
from experiments.runner.definition import Experiment, Result, Run, Table, Value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Figures of the paper's text at 10 % failed links, by network and scheme.
PAPER: Paper = {
    ("dcell:n=3,k=3", "pr-gpi"): {"mean_hops": 10.7},  # printed for DCell_{3,4}
    ("dcell:n=4,k=3", "pr-gpi"): {"connected_fraction": 0.85},
    ("dcell:n=4,k=3", "dfr"): {"connected_fraction": 0.95, "mean_hops": 14.0},
    ("beta-dcell:n=4,k=3", "pr-gpi"): {"connected_fraction": 0.85},
}


def measure(run: Run) -> Result:
    """The fraction of pairs whose ends are alive that are connected, and the mean hops of these."""
    dead, flows, name = faults(run), run.integer("flows"), run.text("routing")
    if name == "bfs":
        figures = of_sources(shortest(run, flows, dead), graph(run.text("topology")).servers)
    else:
        found = routed(run, traffic(run, f"uniform:flows={flows}"), dead, least=least_level(run))
        figures = of_pairs(found)
    usual = run.text("failed") == "links" and run.parameters["failed_fraction"] == 0.1
    return Result(figures={**figures, **(beside(PAPER, run.text("topology"), name) if usual else {})})


def of_pairs(found: Tally) -> dict[str, Value]:
    """Figures of random pairs, with the errors that come from their number."""
    fraction, total = found.connected_fraction, found.connected + found.lost
    return {
        "connected_fraction": fraction,
        "se_connected_fraction": math.sqrt(fraction * (1 - fraction) / total),
        "mean_hops": found.mean_hops,
        "se_hops": found.sd_hops / math.sqrt(found.connected),
        "measured_pairs": total,
    }


def of_sources(found: list[Tally], servers: int) -> dict[str, Value]:
    """Figures of random sources, with the error that comes from their number.

    Connected are the pairs of the largest component that a source lies in.  Those within smaller ones are left out:
    at 10 % failed links these hold 3 % of a FiConn's servers, nearly all of them alone.
    """
    reached = max(one.connected for one in found) + 1
    alive = found[0].connected + found[0].lost + 1
    mean, error = mean_and_error([one.mean_hops for one in found if one.connected == reached - 1], servers)
    return {
        "connected_fraction": reached * (reached - 1) / (alive * (alive - 1)),
        "se_connected_fraction": 0.0,
        "mean_hops": mean,
        "se_hops": error,
        "measured_pairs": sum(one.connected + one.lost for one in found),
    }


def plot(table: Table, figure: Figure) -> None:
    """Figures 5 and 6: connectivity over the networks, and the lengths of the routes that connect."""
    figure.set_size_inches(9, 8.2)
    networks, lines = in_order(table), series(table, "failed", "failed_fraction", "apply", "flows")
    above, below = figure.subplots(2, 1)
    draw_over_networks(above, lines, networks, "connected_fraction")
    mark_paper(above, table, networks, "connected_fraction")
    failed = {f"{100 * float(str(row['failed_fraction'])):g} % of {row['failed']}" for row in table}
    above.set(
        ylabel="connected pairs (fraction)", ylim=(0, 1.03), title=f"Connectivity, {', '.join(sorted(failed))} failed"
    )
    figure.legend(*above.get_legend_handles_labels(), ncols=8, loc="outside upper right")
    draw_over_networks(below, lines, networks, "mean_hops")
    mark_paper(below, table, networks, "mean_hops")
    below.set(ylabel="mean hop-length of connected pairs (hops)", title="Lengths of the routes that connect them")


EXPERIMENT = Experiment(
    name="connectivity",
    question="When links die, which pairs stay connected, and how much longer are their routes?",
    source="CCRDN, sections 6.4 and 7.2, figures 5 and 6",
    engines=("graph",),
    sweep={
        "topology": [
            *(f"dcell:n={n},k={k}" for n, k in ((11, 2), (18, 2), (43, 2), (3, 3), (4, 3), (6, 3))),
            *(f"beta-dcell:n={n},k={k}" for n, k in ((11, 2), (18, 2), (43, 2), (3, 3), (4, 3), (6, 3))),
            *(f"ficonn:n={n},k={k}" for n, k in ((22, 2), (36, 2), (48, 2), (8, 3), (10, 3), (16, 3))),
        ],
        "routing": ["dr", "pr-gp0", "pr-gpi", "pr-gpe", "dfr", "bfs"],
        "failed": ["links"],
        "failed_fraction": [0.1],
        "flows": [20000],
        "apply": ["algorithm"],
    },
    seeds=5,
    measure=measure,
    plot=plot,
    check=check,
)
