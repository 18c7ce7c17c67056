"""How much shorter than dimensional routes are proxy routes, and how far from shortest?  CCRDN,
sections 6.3 and 7.1.

Figure 3 is the mean hop-length of each scheme, figure 4 what a search costs and finds: candidates
per pair, and proxy routes per pair that are no longer than DR's.  Condition 1 is applied, as in the
paper.

What differs from the paper.  "3.9 proxies for FiConn_{3,10}" is what GP_0 tries on FiConn_{3,16};
on FiConn_{3,10} an X(0) has one or two servers with a level-3 link.  "Up to 6-7 % in FiConn" is
more than shortest paths themselves gain, about 5.5 %.  GP_I and GP_0 do not "invariably consider
more proxy candidates" on DCell: over all pairs of DCell_{3,3} GP_0 tries 0.001 % more than on
beta-DCell_{3,3}.  The paper's 10,000 pairs are routed by breadth-first search one by one; ours
start from fewer servers and end at every other, which gives a smaller error for less work.  DFR, on
DCell, and TAR, on FiConn, are not in the paper's figure; TAR's routes depend on the flows that came
before.
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
    check_work,
    draw_over_networks,
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
from weft.experiments.engines.graph import METHODS, graph, policy
from weft.experiments.engines.pairs import Pairs
from weft.experiments.engines.tally import Tally
from weft.experiments.report.statistics import mean_and_error
from weft.experiments.runner.definition import Experiment, Result, Run, Statement, Table, Value
from weft.experiments.runner.parameters import Integer, Spec
from weft.topologies.core.grammar import parse
from weft.topologies.recursive.ccrdn import DCELL, FAMILY, FICONN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_PAIRS = 10**9  # that "all" may be

# Figures of the paper's text, by network and scheme.
PAPER: PaperValues = {
    # printed for DCell_{3,4}, where the definition gives 11.3
    ("dcell:n=3,k=3", "dr"): {"mean_hops": 10.2},
    ("dcell:n=6,k=3", "pr-gp0"): {"candidates_per_pair": 12.0},
    ("beta-dcell:n=6,k=3", "pr-gp0"): {"candidates_per_pair": 12.0},
    ("ficonn:n=16,k=3", "pr-gp0"): {"candidates_per_pair": 3.9},  # printed for FiConn_{3,10}
    ("dcell:n=6,k=3", "pr-gpi"): {"shorter_fraction": 0.3},
}


def check_run(run: Run) -> None:
    """ValueError for a scheme that is not for the network, and for all pairs of a network that has
    too many."""
    check(run)
    servers = graph(run.text("topology")).servers
    if run.text("pairs") == "all" and servers**2 > MOST_PAIRS:
        raise ValueError(
            f"hop_length: {run.text('topology')} has {servers**2:.2g} pairs; pairs=all takes 1e9"
        )
    check_work(run, pairs_of(run).total)


def check_pairs(text: str) -> None:
    """ValueError unless `text` is all, or a number of pairs."""
    if text != "all" and not (
        text.isascii() and text.isdecimal() and 1 <= int(text[:19]) <= common.MOST_PAIRS
    ):
        raise ValueError(
            f"hop_length: pairs must be all or a number, 1 .. {common.MOST_PAIRS}, got {text}"
        )


def goes_together(run: Run) -> bool:
    """Whether the scheme was made for the network: DFR for DCell, TAR for FiConn."""
    made_for = {"dfr": DCELL, "tar": FICONN}.get(parse(run.text("routing"))[0])
    return made_for is None or FAMILY[made_for] == parse(run.text("topology"))[0]


def pairs_of(run: Run) -> Pairs:
    """All pairs, or as many random ones as the run says."""
    pairs = run.text("pairs")
    return traffic(run, "all-to-all" if pairs == "all" else f"uniform:flows={pairs}")


def measure(run: Run) -> Result:
    """Mean hops with its standard error; for a proxy scheme, what its searches try and find."""
    chosen, name = pairs_of(run), run.text("routing")
    figures: dict[str, Value] = {"servers": chosen.servers, "measured_pairs": chosen.total}
    if name == "bfs":
        figures |= of_sources(
            shortest(run, chosen.total, everywhere=run.text("pairs") == "all"), chosen.servers
        )
    else:
        found = routed(
            run, chosen, condition1=bool(run.integer("condition1")), least=least_level(run)
        )
        spread = 0.0 if run.text("pairs") == "all" else found.sd_hops
        error = None if spread is None else spread / math.sqrt(found.connected)
        figures |= {"mean_hops": found.mean_hops, "se_hops": error}
    if parse(name)[0] in METHODS:
        figures |= search_of(run, chosen)
    return Result(figures=figures | beside(PAPER, run.text("topology"), name))


def of_sources(found: list[Tally], servers: int) -> dict[str, Value]:
    """Mean hops over sources that each reach all other servers."""
    mean, error = mean_and_error([one.mean_hops or 0.0 for one in found], servers)
    return {
        "mean_hops": mean,
        "se_hops": error,
        "measured_pairs": sum(one.connected for one in found),
    }


def search_of(run: Run, chosen: Pairs) -> dict[str, float]:
    """Candidates and proxy routes no longer than DR's per pair, with their standard errors, and the
    fraction of pairs that have a shorter one."""
    net, name = graph(run.text("topology")), parse(run.text("routing"))[0]
    tries = policy(name, least_level=least_level(run), condition1=bool(run.integer("condition1")))
    sums = net.survey(tries, chosen) / chosen.total
    spread = np.sqrt(np.maximum(0, sums[[1, 3]] - sums[[0, 2]] ** 2) / chosen.total) * (
        run.text("pairs") != "all"
    )
    return {
        "candidates_per_pair": float(sums[0]),
        "se_candidates_per_pair": float(spread[0]),
        "no_longer_routes_per_pair": float(sums[2]),
        "se_no_longer_routes_per_pair": float(spread[1]),
        "shorter_fraction": float(sums[4]),
    }


def plot(table: Table, figure: Figure) -> None:
    """Figures 3 and 4: mean hops over the networks; candidates and what they are good for."""
    figure.set_size_inches(9, 9)
    networks, lines = in_order(table), series(table, "apply", "condition1", "pairs")
    above, below = figure.subplots(2, 1)
    draw_over_networks(above, lines, networks, "mean_hops")
    mark_paper(above, table, networks, "mean_hops")
    above.set(ylabel="mean hop-length (hops)", title="Mean hop-length (CCRDN, figure 3)")
    searches = [line for line in lines if any("candidates_per_pair" in row for row in line.rows)]
    draw_over_networks(below, searches, networks, "candidates_per_pair")
    short = [
        line._replace(
            look=line.look._replace(label=line.look.label + ", no longer than DR"), dash=":"
        )
        for line in searches
    ]
    draw_over_networks(below, short, networks, "no_longer_routes_per_pair")
    mark_paper(below, table, networks, "candidates_per_pair")
    below.set(
        ylabel="routes per pair",
        yscale="log",
        title="Candidates, and routes no longer than DR (figure 4)",
    )
    legend_above(figure)


EXPERIMENT = Experiment(
    name="hop_length",
    question="How much shorter than dimensional routes are proxy routes, and how far from "
    "shortest?",
    source="CCRDN, sections 6.3 and 7.1, figures 3 and 4",
    engines=("graph",),
    axes={
        "topology": TOPOLOGY.over(
            *(
                f"dcell:n={n},k={k}"
                for n, k in ((11, 2), (18, 2), (43, 2), (3, 3), (4, 3), (5, 3), (6, 3))
            ),
            *(
                f"beta-dcell:n={n},k={k}"
                for n, k in ((11, 2), (18, 2), (43, 2), (3, 3), (4, 3), (5, 3), (6, 3))
            ),
            *(
                f"ficonn:n={n},k={k}"
                for n, k in ((22, 2), (36, 2), (48, 2), (86, 2), (8, 3), (10, 3), (16, 3))
            ),
        ),
        "routing": ROUTING.over("dr", "pr-gp0", "pr-gpi", "pr-gpe", "dfr", "tar", "bfs"),
        "pairs": Spec(
            meaning="pairs of servers that are routed",
            unit="pairs",
            form="all, or a number",
            check=check_pairs,
        ).over("100000"),
        "apply": common.APPLY.over("algorithm"),
        "condition1": Integer(
            meaning="1: no proxies where condition 1 says that none is shorter", least=0, most=1
        ).over(1),
    },
    columns=columns.HOP_LENGTH,
    statements=[
        Statement(
            says=f"GP_I shortens DR's routes by {percent} % on {name} (section 7.1)",
            paper=f"{paper} at best",
            column="mean_hops",
            cell={"topology": topology, "routing": "pr-gpi"},
            over={"routing": "dr"},
        )
        for name, topology, percent, paper in (
            ("beta-DCell", "beta-dcell:n=3,k=3", "up to 16", "0.84"),
            ("DCell", "dcell:n=3,k=3", "closer to 10", "0.90"),
            ("FiConn", "ficonn:n=8,k=3", "up to 6 to 7", "0.93"),
        )
    ],
    seeds=1,
    version=3,
    takes_s=600,
    measure=measure,
    plot=plot,
    goes_together=goes_together,
    check=check_run,
)
