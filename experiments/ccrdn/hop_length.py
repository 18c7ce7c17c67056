"""Sizes of networks, and lengths of routes beside dimensional and shortest ones.

CCRDN, table 1, counted on the network: servers, switches, links, the bound on DR's hops, and the
copies of X(l-1) in an X(l).

CCRDN, sections 6.3 and 7.1.  Figure 3 is the mean hop-length of each scheme, figure 4 the cost and
yield of a search: candidates per pair, and proxy routes per pair no longer than DR's.  Condition 1
is applied, as in the paper.

Differences from the paper.  "3.9 proxies for FiConn_{3,10}" is what GP_0 tries on FiConn_{3,16};
on FiConn_{3,10} an X(0) has one or two servers with a level-3 link.  "Up to 6-7 % in FiConn" is
more than shortest paths themselves gain, about 5.5 %.  GP_I and GP_0 do not "invariably consider
more proxy candidates" on DCell: over all pairs of DCell_{3,3} GP_0 tries 0.001 % more than on
beta-DCell_{3,3}.  The paper searches 10,000 pairs breadth-first one by one; ours starts from fewer
servers and ends at every other, with a smaller error for less work.  DFR (DCell) and TAR (FiConn)
are not in the paper's figure; TAR's routes depend on earlier flows.

The distribution of lengths (CCRDN 7.2, figures 7 to 9) is that of DR and PR with GP_I under
uniform random traffic, on the whole network and with 10 % of its links failed.  On FiConn odd
lengths are more frequent, because its routes alternate between level-0 hops and others.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from weft.experiments.ccrdn.recursive import (
    MEAN_HOPS_COLUMNS,
    ROUTING,
    TOPOLOGY,
    check,
    check_work,
    faults,
    networks,
    over_networks,
    policy_of,
    routed,
    shortest,
    traffic,
    uniform,
)
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.graph import METHODS, graph_of, policy
from weft.experiments.engines.loops import Tally
from weft.experiments.engines.pairs import Pairs, pairs
from weft.experiments.report.panels import Bars, Curves, exploded
from weft.experiments.report.statistics import mean_and_error
from weft.experiments.runner.definition import Experiment, Result, Row, Run
from weft.experiments.runner.parameters import Integer, Spec
from weft.topologies.core.grammar import parse
from weft.topologies.recursive.ccrdn import DCELL, FAMILY, FICONN

SAMPLE_PAIRS = 1_000_000
COUNTS = ("servers", "switches", "links", "dr_bound_hops", "copies_1", "copies_2", "copies_3")

TABLE_1 = {
    "ficonn:n=36,k=2": (117648, 3268, 161766, 7, 19, 172, None),
    "ficonn:n=48,k=2": (361200, 7525, 496650, 7, 25, 301, None),
    "ficonn:n=10,k=3": (116160, 11616, 166980, 15, 6, 16, 121),
    "ficonn:n=16,k=3": (3553776, 222111, 5108553, 15, 9, 37, 667),
    "dcell:n=18,k=2": (117306, 6517, 234612, 7, 19, 343, None),
    "dcell:n=43,k=2": (3581556, 83292, 7163112, 7, 44, 1893, None),
    "dcell:n=3,k=3": (24492, 8164, 61230, 15, 4, 13, 157),
    "dcell:n=4,k=3": (176820, 44205, 442050, 15, 5, 21, 421),
    "dcell:n=6,k=3": (3263442, 543907, 8158605, 15, 7, 43, 1807),
}


def measure_properties(run: Run) -> Result:
    """Count the columns of table 1, and measure the longest DR route of a sample."""
    net = graph_of(run)
    copies = net.network.copies
    sample = pairs(f"uniform:flows={SAMPLE_PAIRS}", net.servers, run.generator())
    counted: tuple[int | None, ...] = (
        net.servers,
        net.servers // net.network.n,
        len(net.links[0]),
        2 ** (net.k + 1) - 1,
        *(copies[level] if level <= net.k else None for level in (1, 2, 3)),
    )
    figures: Row = dict(zip(COUNTS, counted, strict=True))
    figures["longest_seen_hops"] = len(net.route(policy("dr"), sample).hops) - 1
    as_in_paper = TABLE_1.get(run.text("topology"))
    if as_in_paper:
        figures["as_in_paper"] = counted == as_in_paper
    return Result(figures)


PROPERTIES = Experiment(
    name="ccrdn_properties",
    question="How large are the networks of the evaluation?",
    source="CCRDN, table 1",
    engines=("graph",),
    axes={"topology": TOPOLOGY.over(*list(TABLE_1))},
    columns={
        "servers": "servers of the network",
        "switches": "switches of the network",
        "links": "links of the network, those to switches included",
        "dr_bound_hops": "2^(k+1) - 1, which no route of DR exceeds",
        "copies_*": (
            "networks of the level below in one of the level that the name ends in; null above k"
        ),
        "longest_seen_hops": "longest route of DR among a million random pairs",
        "as_in_paper": (
            "whether the counts are those of the paper's table 1; missing where it has no such "
            "network"
        ),
    },
    seeds=1,
    takes_s=1,
    measure=measure_properties,
    plot=Bars(
        columns={"servers": "servers", "links": "links", "longest_seen_hops": "longest route"},
        by=("topology",),
        strokes={"longest_seen_hops": {"dr_bound_hops": "bound on DR's hops"}},
    ),
    must_hold=("as_in_paper",),
)


MOST_PAIRS = 10**9  # of pairs=all
DCELL_SIZES = ((11, 2), (18, 2), (43, 2), (3, 3), (4, 3), (5, 3), (6, 3))
FICONN_SIZES = ((22, 2), (36, 2), (48, 2), (86, 2), (8, 3), (10, 3), (16, 3))


def check_run(run: Run) -> None:
    """Raise ValueError unless the scheme suits the network, which has not too many pairs."""
    check(run)
    servers = graph_of(run).servers
    if run.text("pairs") == "all" and servers**2 > MOST_PAIRS:
        raise ValueError(
            f"hop_length: {run.text('topology')} has {servers**2:.2g} pairs; pairs=all takes 1e9"
        )
    check_work(run, pairs_of(run).total)


def check_pairs(text: str) -> None:
    """Raise ValueError unless `text` is all, or a number of pairs."""
    if text == "all":
        return
    decimal = text.isascii() and text.isdecimal()
    if not decimal or not 1 <= int(text[:19]) <= common.MOST_PAIRS:
        raise ValueError(
            f"hop_length: pairs must be all or a number, 1 .. {common.MOST_PAIRS}, got {text}"
        )


def goes_together(run: Run) -> bool:
    """Return whether the scheme is designed for the network: DFR for DCell, TAR for FiConn."""
    family = {"dfr": DCELL, "tar": FICONN}.get(parse(run.text("routing"))[0])
    return family is None or FAMILY[family] == parse(run.text("topology"))[0]


def all_pairs(run: Run) -> bool:
    return run.text("pairs") == "all"


def pairs_of(run: Run) -> Pairs:
    """Return all pairs, or as many random ones as `run` says."""
    return traffic(run, "all-to-all") if all_pairs(run) else uniform(run, run.text("pairs"))


def measure(run: Run) -> Result:
    """Measure mean hops with its standard error; for PR also the yield of its searches."""
    pairs = pairs_of(run)
    name = run.text("routing")
    figures: Row = {"servers": pairs.servers, "measured_pairs": pairs.total}
    if name == "bfs":
        searches = shortest(run, pairs.total, everywhere=all_pairs(run))
        figures |= hops_from_sources(searches, pairs.servers)
    else:
        tally = routed(run, pairs, condition1=bool(run.integer("condition1")))
        deviation = 0.0 if all_pairs(run) else tally.sd_hops
        error = None if deviation is None else deviation / math.sqrt(tally.connected)
        figures |= {"mean_hops": tally.mean_hops, "se_hops": error}
    if parse(name)[0] in METHODS:
        figures |= search_yield(run, pairs)
    return Result(figures)


def hops_from_sources(searches: list[Tally], servers: int) -> Row:
    """Return mean hops over sources that each reach all other servers."""
    mean, error = mean_and_error([search.mean_hops or 0.0 for search in searches], servers)
    return {
        "mean_hops": mean,
        "se_hops": error,
        "measured_pairs": sum(search.connected for search in searches),
    }


def search_yield(run: Run, pairs: Pairs) -> dict[str, float]:
    """Return candidates and proxy routes no longer than DR's per pair, with standard errors.

    Also the fraction of pairs that have a shorter proxy route.
    """
    net = graph_of(run)
    tries = policy_of(run, condition1=bool(run.integer("condition1")))
    # candidates, their squares, routes no longer than DR's, their squares, pairs with a shorter one
    means = net.survey(tries, pairs) / pairs.total
    errors = np.sqrt(np.maximum(0, means[[1, 3]] - means[[0, 2]] ** 2) / pairs.total)
    if all_pairs(run):
        errors *= 0
    return {
        "candidates_per_pair": means[0],
        "se_candidates_per_pair": errors[0],
        "no_longer_routes_per_pair": means[2],
        "se_no_longer_routes_per_pair": errors[1],
        "shorter_fraction": means[4],
    }


HOP_LENGTH = Experiment(
    name="hop_length",
    question="How much shorter than dimensional routes are proxy routes, and how far from "
    "shortest?",
    source="CCRDN, sections 6.3 and 7.1, figures 3 and 4",
    engines=("graph",),
    axes={
        "topology": TOPOLOGY.over(
            *networks("dcell", *DCELL_SIZES),
            *networks("beta-dcell", *DCELL_SIZES),
            *networks("ficonn", *FICONN_SIZES),
        ),
        "routing": ROUTING.over("dr", "pr-gp0", "pr-gpi", "pr-gpe", "dfr", "tar", "bfs"),
        "pairs": Spec(
            "pairs of servers that are routed",
            unit="pairs",
            form="all, or a number",
            check=check_pairs,
        ).over("100000"),
        "apply": common.APPLY.over("algorithm"),
        "condition1": Integer(
            "1: no proxies where condition 1 says that none is shorter", least=0, most=1
        ).over(1),
    },
    columns={
        "servers": "servers of the network",
        **MEAN_HOPS_COLUMNS,
        "candidates_per_pair": "proxies that the scheme tries for a pair, mean",
        "se_candidates_per_pair": "standard error of candidates_per_pair",
        "no_longer_routes_per_pair": (
            "routes by a proxy that are no longer than DR's, of a pair, mean"
        ),
        "se_no_longer_routes_per_pair": "standard error of no_longer_routes_per_pair",
        "shorter_fraction": "pairs for which a proxy gives a shorter route than DR's",
    },
    seeds=1,
    version=3,
    takes_s=600,
    measure=measure,
    plot=over_networks(
        {
            "mean_hops": "mean hop-length (figure 3)",
            "candidates_per_pair": "candidates of a pair (figure 4)",
            "no_longer_routes_per_pair": "routes no longer than DR's (figure 4)",
        },
        "apply",
        "condition1",
        "pairs",
        log=("candidates_per_pair", "no_longer_routes_per_pair"),
    ),
    goes_together=goes_together,
    check=check_run,
)


def check_histogram(run: Run) -> None:
    """Raise ValueError for runs that the graph engine cannot do."""
    check(run)
    if run.text("routing") == "bfs":
        raise ValueError(
            "hop_histogram: bfs finds lengths from sampled sources only; take dr, pr-gpi, ..."
        )


def measure_histogram(run: Run) -> Result:
    """Measure the fraction of all pairs with a route of 0, 1, 2, ... hops.

    The fractions add up to that of the connected pairs.
    """
    flows = run.integer("flows")
    tally = routed(run, uniform(run, flows), faults(run))
    return Result(
        {
            "pairs_by_hops_fraction": (tally.hops / flows).tolist(),
            "mean_hops": tally.mean_hops,
            "longest_hops": len(tally.hops) - 1 if tally.connected else None,
            "connected_fraction": tally.connected_fraction,
        }
    )


HOP_HISTOGRAM = Experiment(
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
    columns={
        "pairs_by_hops_fraction": "list: which fraction of all pairs has a route of 0, 1, 2, ... "
        "hops; what is missing "
        "from 1 is not connected",
        "mean_hops": "mean length of the routes of connected pairs",
        "longest_hops": "longest route; null if no pair is connected",
        "connected_fraction": "pairs with a route, of all",
    },
    seeds=1,
    version=3,
    takes_s=95,
    measure=measure_histogram,
    plot=Curves(
        columns={"pairs_by_hops_fraction": "pairs (fraction)"},
        x="hops",
        series="routing",
        dash="failed_fraction",
        facet=("topology", "failed", "flows", "apply"),
        rows=partial(exploded, columns=("pairs_by_hops_fraction",), index="hops"),
    ),
    check=check_histogram,
)
