"""When links die, which pairs stay connected, and how much longer are their routes?  CCRDN,
sections 6.4 and 7.2.

Figures 5 and 6: 10 % of the links have failed, drawn uniformly.  A scheme connects a pair if one of
the routes that it tries is alive; PR takes the shortest of these.  Shortest paths show what is
physically there.  A fault set is one sample: the error of a figure is that over the seeds.

traffic: uniform, many-all-to-all:group=50 or one-to-all, of which `flows` pairs at most are routed.
Shortest paths are those of random sources to all servers, or of the one source; what random groups
have in common is the same.

What differs from the paper.  Its hop-lengths for DCell_{3,4} under faults, 10.7 for GP_I against
10.2 for DR without, are those of DCell_{3,3}.  Its simulator draws faults by node and port, and
stops at a link that is dead in one direction only. DFR's 95 % and 14 hops are interpolated from its
own paper, as the authors say.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from weft.experiments.ccrdn import columns
from weft.experiments.ccrdn.recursive import (
    ROUTING,
    TOPOLOGY,
    PaperValues,
    beside,
    check,
    draw_over_networks,
    faults,
    in_order,
    least_level,
    legend_above,
    mark_paper,
    routed,
    series,
    shortest,
    traffic,
)
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.graph import graph
from weft.experiments.engines.pairs import ONE_TO_ALL, Pairs
from weft.experiments.engines.tally import Tally
from weft.experiments.engines.wiring import Faults
from weft.experiments.report.statistics import mean_and_error
from weft.experiments.runner.definition import Experiment, Result, Run, Table, Value
from weft.experiments.runner.parameters import Spec
from weft.topologies.core.grammar import parse

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Figures of the paper's text at 10 % failed links, by network and scheme.
PAPER: PaperValues = {
    ("dcell:n=3,k=3", "pr-gpi"): {"mean_hops": 10.7},  # printed for DCell_{3,4}
    ("dcell:n=4,k=3", "pr-gpi"): {"connected_fraction": 0.85},
    ("dcell:n=4,k=3", "dfr"): {"connected_fraction": 0.95, "mean_hops": 14.0},
    ("beta-dcell:n=4,k=3", "pr-gpi"): {"connected_fraction": 0.85},
}


def measure(run: Run) -> Result:
    """The fraction of pairs whose ends are alive that are connected, and the mean hops of these."""
    dead, name, chosen = faults(run), run.text("routing"), pairs_of(run)
    # each pair is drawn alone, and tells its own error
    alone = run.text("traffic") in ("uniform", "permutation")
    if name != "bfs":
        figures = of_pairs(routed(run, chosen, dead, least=least_level(run)), alone)
    elif chosen.pattern == ONE_TO_ALL:
        source = int(chosen.order[0])
        figures = of_sources(
            graph(run.text("topology")).shortest([source], dead) if alive(source, dead) else []
        )
    else:
        figures = of_sources(shortest(run, chosen.total, dead))
    usual = run.text("failed") == "links" and run.parameters["failed_fraction"] == 0.1
    return Result(
        figures={**figures, **(beside(PAPER, run.text("topology"), name) if usual else {})}
    )


def pairs_of(run: Run) -> Pairs:
    """The first `flows` pairs of its traffic, whose servers and groups are in random order."""
    flows, spec = run.integer("flows"), run.text("traffic")
    chosen = traffic(run, f"uniform:flows={flows}" if spec == "uniform" else spec)
    return chosen._replace(total=min(flows, chosen.total))


def alive(server: int, dead: Faults) -> bool:
    """Whether `server` itself is not among the dead."""
    return not len(dead.servers) or not dead.servers[server]


def of_pairs(found: Tally, alone: bool = True) -> dict[str, Value]:
    """Figures of random pairs, with the errors that come from their number if each is drawn
    `alone`; None for what no pair tells."""
    fraction, spread, total = found.connected_fraction, found.sd_hops, found.connected + found.lost
    return {
        "connected_fraction": fraction,
        "se_connected_fraction": math.sqrt(fraction * (1 - fraction) / total)
        if alone and fraction is not None
        else None,
        "mean_hops": found.mean_hops,
        "se_hops": spread / math.sqrt(found.connected) if alone and spread is not None else None,
        "measured_pairs": total,
    }


def of_sources(found: list[Tally]) -> dict[str, Value]:
    """Figures of random sources, each with all its destinations, and the errors that come from
    their number.

    Where most servers lie in one component, its size gives nearly all of the connected pairs
    exactly, and the sources outside tell the rest.  Where they do not, the mean over the sources
    estimates the fraction.
    """
    alive = found[0].connected + found[0].lost + 1 if found else 0
    if alive < 2:
        return of_pairs(Tally(np.zeros(0, np.int64), 0, 0))
    reached = [one.connected for one in found]
    largest = max(reached) + 1
    few = [one for one in reached if one + 1 < largest]
    if 2 * largest > alive:
        share, rest = largest / alive, (alive - largest) / alive
        mean, error = mean_and_error(few, alive - largest) if few else (0.0, 0.0)
        fraction = (share * (largest - 1) + rest * mean) / (alive - 1)
        error *= rest
    else:
        mean, error = mean_and_error(reached, alive)
        fraction = mean / (alive - 1)
    return {
        "connected_fraction": fraction,
        "se_connected_fraction": error / (alive - 1),
        **hops_of(found, alive),
        "measured_pairs": sum(one.connected + one.lost for one in found),
    }


def hops_of(found: list[Tally], alive: int) -> dict[str, Value]:
    """Mean hops over the connected pairs of `found`, of `alive` sources that there are, and its
    standard error as a ratio of two sums over the sources."""
    connected = np.array([one.connected for one in found])
    if not connected.sum():
        return {"mean_hops": None, "se_hops": None}
    hops = np.array([one.connected * (one.mean_hops or 0.0) for one in found])
    mean = hops.sum() / connected.sum()
    _, error = mean_and_error((hops - mean * connected).tolist(), alive)
    return {"mean_hops": float(mean), "se_hops": error / float(connected.mean())}


def traffic_of(text: str) -> None:
    """ValueError unless `text` is a traffic whose pairs come in random order."""
    name, given = parse(text)
    if name == "all-to-all":
        raise ValueError("all-to-all: its pairs are those that uniform draws from")
    if name != "uniform":
        common.traffic(text)
    elif given:
        raise ValueError(f"uniform: its number of pairs is flows=..., got {text}")


TRAFFIC = Spec(
    meaning="who sends to whom",
    form="uniform, many-all-to-all:group=N, one-to-all or permutation",
    check=traffic_of,
)


def plot(table: Table, figure: Figure) -> None:
    """Figures 5 and 6: connectivity over the networks, and the lengths of the routes that
    connect."""
    figure.set_size_inches(9, 8.2)
    networks, lines = (
        in_order(table),
        series(table, "failed", "failed_fraction", "traffic", "apply", "flows"),
    )
    above, below = figure.subplots(2, 1)
    draw_over_networks(above, lines, networks, "connected_fraction")
    mark_paper(above, table, networks, "connected_fraction")
    failed = {
        f"{100 * float(str(row['failed_fraction'])):g} % of {row['failed']} failed" for row in table
    }
    about = failed.pop() if len(failed) == 1 else "several faults"
    above.set(
        ylabel="connected pairs (fraction)", ylim=(-0.02, 1.03), title=f"Connectivity, {about}"
    )
    draw_over_networks(below, lines, networks, "mean_hops")
    mark_paper(below, table, networks, "mean_hops")
    below.set(
        ylabel="mean hop-length of connected pairs (hops)",
        title="Lengths of the routes that connect them",
    )
    legend_above(figure)


EXPERIMENT = Experiment(
    name="connectivity",
    question="When links die, which pairs stay connected, and how much longer are their routes?",
    source="CCRDN, sections 6.4 and 7.2, figures 5 and 6",
    engines=("graph",),
    axes={
        "topology": TOPOLOGY.over(
            *(f"dcell:n={n},k={k}" for n, k in ((11, 2), (18, 2), (43, 2), (3, 3), (4, 3), (6, 3))),
            *(
                f"beta-dcell:n={n},k={k}"
                for n, k in ((11, 2), (18, 2), (43, 2), (3, 3), (4, 3), (6, 3))
            ),
            *(
                f"ficonn:n={n},k={k}"
                for n, k in ((22, 2), (36, 2), (48, 2), (8, 3), (10, 3), (16, 3))
            ),
        ),
        "routing": ROUTING.over("dr", "pr-gp0", "pr-gpi", "pr-gpe", "dfr", "bfs"),
        "failed": common.FAILED.over("links"),
        "failed_fraction": common.FAILED_FRACTION.over(0.1),
        "flows": common.FLOWS.over(20000),
        "traffic": TRAFFIC.over("uniform"),
        "apply": common.APPLY.over("algorithm"),
    },
    columns=columns.CONNECTIVITY,
    seeds=5,
    version=3,
    takes_s=280,
    measure=measure,
    plot=plot,
    check=check,
)
