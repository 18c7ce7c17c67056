"""Sizes of the networks of the evaluation: CCRDN, table 1.

Servers, switches, links, the bound on DR's hops, and the copies of X(l-1) in an X(l), all counted
on the network.
"""

from __future__ import annotations

from weft.experiments.ccrdn.recursive import TOPOLOGY
from weft.experiments.engines.graph import graph_of, policy
from weft.experiments.engines.pairs import pairs
from weft.experiments.report.panels import Bars
from weft.experiments.runner.definition import Experiment, Result, Row, Run

SAMPLE_PAIRS = 1_000_000
COLUMNS = ("servers", "switches", "links", "dr_bound_hops", "copies_1", "copies_2", "copies_3")

PAPER = {
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


def measure(run: Run) -> Result:
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
    figures: Row = dict(zip(COLUMNS, counted, strict=True))
    figures["longest_seen_hops"] = len(net.route(policy("dr"), sample).hops) - 1
    as_in_paper = PAPER.get(run.text("topology"))
    if as_in_paper:
        figures["as_in_paper"] = counted == as_in_paper
    return Result(figures)


EXPERIMENT = Experiment(
    name="ccrdn_properties",
    question="How large are the networks of the evaluation?",
    source="CCRDN, table 1",
    engines=("graph",),
    axes={"topology": TOPOLOGY.over(*list(PAPER))},
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
    measure=measure,
    plot=Bars(
        columns={"servers": "servers", "links": "links", "longest_seen_hops": "longest route"},
        by=("topology",),
        strokes={"longest_seen_hops": {"dr_bound_hops": "bound on DR's hops"}},
    ),
    must_hold=("as_in_paper",),
)
