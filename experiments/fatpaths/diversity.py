"""Diversity of paths between routers, and need of it: FatPaths, table IV, figures 4 and 6 to 8.

Do shortest paths fall short, and are there enough others?  For pairs of routers with hosts:
lengths of shortest paths (all pairs), c_min, the disjoint shortest paths; CDP, the disjoint paths
of at most `hops` links; PI, what two pairs take from each other. CDP and PI are divided by k' and
sampled; the interval of a mean is in the row.  hops=0 means the paper's d' for networks of its
table IV, and D + 1 for others.  Figures 7 and 8 are hops=2,3,4.

Figure 4 has the flows between the same pair of routers.  Hosts are placed at random, so this
depends on the number of routers and of hosts at each alone. In the paper three disjoint paths are
needed, since with D > 1 nearly no pair has more than three flows.
"""

from __future__ import annotations

import numpy as np

from weft.experiments.engines.arrays import Ints
from weft.experiments.engines.workloads import mapped, pairs
from weft.experiments.fatpaths import router_graph
from weft.experiments.fatpaths.router_graph import RouterGraph, collisions
from weft.experiments.fatpaths.table_iv import NETWORK, TABLE_IV, label, looks
from weft.experiments.report.panels import Bars, Curves, Stack, exploded, varied
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table
from weft.experiments.runner.parameters import Integer, Spec

LEAST_SHARE = 1e-4  # drawn; a sample of some thousand shows no less


def measure(run: Run) -> Result:
    """Return shares of pairs by shortest paths, and mean, tail and shares of CDP and PI."""
    graph = RouterGraph.of(run.topology)
    paper = TABLE_IV.get(run.text("topology"))
    hops = run.integer("hops") or (paper.hops if paper else graph.diameter + 1)
    rng = run.generator()
    pairs = router_graph.random_pairs(graph, run.integer("pairs"), rng)
    fours = router_graph.random_fours(graph, run.integer("fours"), rng)
    return Result(
        {
            "used_hops": hops,
            "radix": graph.network_radix,
            **shortest_paths(graph),
            "minimal_disjoint_shares": shares(router_graph.minimal_disjoint(graph, pairs)),
            **statistics("cdp", router_graph.cdp(graph, pairs, hops), 0.01),
            **statistics("interference", router_graph.interference(graph, fours, hops), 0.999),
            **(printed(paper.cdp, paper.interference) if paper and paper.hops == hops else {}),
        }
    )


def shortest_paths(graph: RouterGraph) -> Row:
    """Return the columns on shortest paths of all pairs of routers with hosts."""
    among = np.ix_(graph.endpoints, graph.endpoints)
    different = ~np.eye(len(graph.endpoints), dtype=bool)
    return {
        "shortest_length_shares": shares(graph.distance[among][different].astype(np.int64)),
        "one_shortest_fraction": (graph.path_count[among][different] == 1).mean(),
    }


def statistics(name: str, sample: router_graph.Sample, tail: float) -> Row:
    """Return the columns of one measure, as fractions of k'."""
    return {
        f"{name}_mean_fraction": sample.mean_fraction,
        f"{name}_mean_error_fraction": sample.mean_error_fraction,
        f"{name}_tail_fraction": sample.quantile_fraction(tail),
        f"{name}_shares": shares(np.maximum(sample.values, 0)),
    }


def printed(cdp: tuple[int, int], interference: tuple[int, int]) -> Row:
    """Return the values of table IV as columns."""
    return {
        f"paper_{name}_{part}_fraction": value / 100
        for name, values in (("cdp", cdp), ("interference", interference))
        for part, value in zip(("mean", "tail"), values, strict=True)
    }


def shares(values: Ints) -> list[float]:
    """Return the share of `values` that are 0, 1, 2, ..."""
    fractions: list[float] = (np.bincount(values) / len(values)).tolist()
    return fractions


def figure_6(table: Table) -> Table:
    """Return a row for each network and number of links or paths, from 1."""
    rows = {row["topology"]: row for row in table}
    lists = ("shortest_length_shares", "minimal_disjoint_shares")
    return [row for row in exploded(list(rows.values()), lists, "count") if row["count"]]


def figures_7_and_8(table: Table) -> Table:
    """Return a row for each number of paths of networks that ran with several lengths."""
    several = varied(table, ("topology",), "used_hops")
    rows = [
        {
            **{key: drawn(row[key]) for key in ("cdp_shares", "interference_shares")},
            "percent_of_radix": 100 * row["paths"] / row["radix"],
            "network": label(row["topology"]).removesuffix("-JF"),
            "kind": "Jellyfish" if "jellyfish" in row["topology"] else "network",
            "hops": f"l = {row['used_hops']}",
        }
        for row in exploded(several, ("cdp_shares", "interference_shares"), "paths")
    ]
    # a panel's first kind has whole lines
    return sorted(rows, key=lambda row: (row["kind"] == "Jellyfish", row["hops"]))


def drawn(share: float | None) -> float | None:
    """Return `share`, or None if it is too small to be drawn."""
    return share if share is not None and share >= LEAST_SHARE else None


BARS = {
    f"{name}_{part}_fraction": f"{title}, {words} (fraction of k')"
    for name, title, tail in (("cdp", "CDP", "1 % tail"), ("interference", "PI", "99.9 % tail"))
    for part, words in (("mean", "mean"), ("tail", tail))
}

FIGURES_7_AND_8 = Curves(
    columns={
        "cdp_shares": "share of pairs by disjoint paths (figure 7)",
        "interference_shares": "share of pairs of pairs by interference (figure 8)",
    },
    x="percent_of_radix",
    series="hops",
    dash="kind",
    facet=("network",),
    log=("cdp_shares", "interference_shares"),
    rows=figures_7_and_8,
)
EXPERIMENT = Experiment(
    name="diversity",
    question="How many shortest and other disjoint paths do low-diameter networks have, and how "
    "do pairs interfere?",
    source="FatPaths, table IV and figures 6, 7 and 8",
    engines=("graph",),
    axes={
        "topology": NETWORK.over(*TABLE_IV),
        "hops": Integer(
            "most links of a path, 0: d' of table IV, or D + 1",
            unit="links",
            least=0,
            most=100,
        ).over(0),
        "pairs": Integer("sampled pairs of routers", unit="pairs", least=2, most=10_000_000).over(
            10_000
        ),
        "fours": Integer("sampled pairs of pairs", unit="pairs", least=2, most=10_000_000).over(
            40_000
        ),
    },
    columns={
        "used_hops": "links of a path that counts, at the most",
        "radix": "links of a router to other routers, k'",
        "shortest_length_shares": (
            "list: which share of pairs has shortest paths of 0, 1, 2, ... links"
        ),
        "minimal_disjoint_shares": (
            "list: which share of the sampled pairs has 0, 1, 2, ... disjoint shortest paths, c_min"
        ),
        "one_shortest_fraction": "pairs with a single shortest path",
        "cdp_mean_fraction": "disjoint paths of a pair (CDP), of k', mean",
        "cdp_mean_error_fraction": "half of its 95 % interval, from the number of pairs",
        "cdp_tail_fraction": "the CDP, of k', that 99 % of the pairs reach",
        "cdp_shares": "list: which share of pairs has 0, 1, 2, ... disjoint paths",
        "interference_mean_fraction": "paths that two pairs take from each other (PI), of k', mean",
        "interference_mean_error_fraction": (
            "half of its 95 % interval, from the number of fours of routers"
        ),
        "interference_tail_fraction": "the PI, of k', that 99.9 % do not exceed",
        "paper_*_fraction": "the value of table IV",
        "interference_shares": (
            "list: the shares of fours with a PI of 0 or less, of 1, of 2 and so on"
        ),
    },
    version=2,  # disjoint shortest paths, and the paper's values
    seeds=1,
    measure=measure,
    plot=Stack(
        Curves(
            columns={
                "shortest_length_shares": "fraction of pairs by l_min (figure 6)",
                "minimal_disjoint_shares": "fraction of pairs by c_min (figure 6)",
            },
            x="count",
            series="topology",
            rows=figure_6,
            looks=looks,
        ),
        Bars(
            columns=BARS,
            by=("topology", "used_hops"),
            strokes={key: {f"paper_{key}": "the paper"} for key in BARS},
            looks=looks,
        ),
        FIGURES_7_AND_8,
    ),
    takes_s=110,
)


PATTERNS = ("permutation", "off-diagonal:c=1", "shuffle", "k-permutation:k=4", "stencil:offset=42")


def check_pattern(text: str) -> None:
    """Raise ValueError unless `text` is a traffic pattern."""
    pairs(text, 5_000, np.random.default_rng(0))


def measure_collisions(run: Run) -> Result:
    """Return the share of ordered pairs of routers with 0, 1, 2, ... flows."""
    topology, rng = run.topology, run.generator()
    links = topology.host_links
    router_of = np.empty(topology.servers, dtype=np.int64)
    router_of[links[:, 0]] = links[:, 2] - topology.servers
    router_of = np.unique(router_of, return_inverse=True)[1]
    flows = pairs(run.text("pattern"), topology.servers, rng)
    if run.integer("mapped"):
        flows = mapped(rng, topology.servers, flows)
    counts = collisions(flows, router_of)
    share = counts / counts.sum()
    return Result(
        {
            "hosts": topology.servers,
            "flow_shares": share.tolist(),
            "over_three_fraction": share[4:].sum(),
            "nine_or_more_fraction": share[9:].sum(),
            "most_flows": len(share) - 1,
        }
    )


def check_collisions(run: Run) -> None:
    """Raise ValueError for a pattern that this network has too few hosts for."""
    pairs(run.text("pattern"), run.topology.servers, np.random.default_rng(0))


def flow_shares(table: Table) -> Table:
    """Return a row for each number of flows that some pair has."""
    return [row for row in exploded(table, ("flow_shares",), "flows") if row["flow_shares"]]


COLLISIONS = Experiment(
    name="collisions",
    question="How many flows of the same pair of routers collide under FatPaths' traffic patterns?",
    source="FatPaths, figure 4",
    engines=("graph",),
    axes={
        "topology": NETWORK.over(
            *("slimfly:q=19,p=14", "dragonfly:p=8,palm=0", "complete:n=101,p=100"),
            *("slimfly:q=41,p=31", "dragonfly:p=13,palm=0", "complete:n=317,p=316"),
        ),
        "pattern": Spec(
            "who sends to whom",
            form="permutation, stencil:offset=42, ...",
            check=check_pattern,
        ).over(*PATTERNS),
        "mapped": Integer("1: hosts are placed at random", least=0, most=1).over(1),
    },
    columns={
        "hosts": "hosts of the network",
        "flow_shares": "list: which share of the ordered pairs of routers has 0, 1, 2, ... flows",
        "over_three_fraction": "pairs of routers with more than three flows",
        "nine_or_more_fraction": "pairs of routers with nine or more",
        "most_flows": "flows of the pair that has most",
    },
    seeds=1,
    measure=measure_collisions,
    plot=Curves(
        columns={"flow_shares": "fraction of router pairs"},
        x="flows",
        series="topology",
        facet=("pattern", "mapped"),
        log=("flow_shares",),
        rows=flow_shares,
        looks=looks,
    ),
    takes_s=5,
    check=check_collisions,
)
