"""Claims of CCRDN, in the order of its evaluation.  D is DCell, β is beta-DCell, F is FiConn."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from weft.experiments.report.claims import (
    OURS,
    Claim,
    Form,
    Query,
    Statement,
    above,
    at_least,
    at_most,
    below,
    between,
    within,
)
from weft.experiments.runner.definition import Row

FAMILIES = {"D": "dcell", "β": "beta-dcell", "F": "ficonn"}
LEVEL_2 = {"D": (11, 18, 43), "β": (11, 18, 43), "F": (22, 36, 48)}
LEVEL_3 = {"D": (3, 4, 6), "β": (3, 4, 6), "F": (8, 10, 16)}
DEEPER = (("D3,4", "D2,18"), ("β3,4", "β2,18"), ("F3,10", "F2,36"))  # of about one size
VERSIONS = {"GP_0": "pr-gp0", "GP_I": "pr-gpi", "GP_E": "pr-gpe"}
PROXIES = tuple(VERSIONS.values())
DR = {"routing": "dr"}
FLOWS = 10_000_000


def listed(names: tuple[str, ...]) -> str:
    """Return names as words."""
    return ", ".join(names[:-1]) + " and " + names[-1]


def network(name: str) -> str:
    """Return the topology of a name such as D3,4."""
    level, n = name[1:].split(",")
    return f"{FAMILIES[name[0]]}:n={n},k={level}"


def networks(*names: str) -> tuple[str, ...]:
    """Return the topologies of names."""
    return tuple(map(network, names))


def named(family: str, level: int) -> tuple[str, ...]:
    """Return our networks of a family and a level, of those in the paper's figures."""
    numbers = (LEVEL_2 if level == 2 else LEVEL_3)[family]
    return tuple(f"{family}{level},{n}" for n in numbers)


def sizes(family: str, level: int) -> tuple[str, ...]:
    """Return the topologies of `named`."""
    return networks(*named(family, level))


def hops(topology: Any, routing: Any, column: str = "mean_hops", **more: Any) -> Query:
    """Return a figure of fault-free routes."""
    where = {"topology": topology, "routing": routing}
    return Query("hop_length", where, column, **more)


def faulty(
    topology: Any,
    routing: Any,
    column: str = "connected_fraction",
    traffic: str = "uniform",
    **more: Any,
) -> Query:
    """Return a figure of routes with one link in ten failed."""
    where = {"topology": topology, "routing": routing, "traffic": traffic}
    return Query("connectivity", where, column, **{"seeds": 5, **more})


def of_pairs(row: Row, column: str) -> float:
    """Return the standard error of a mean over sampled pairs."""
    return float(row[f"se_{column.removeprefix('mean_')}"])


def of_flows(row: Row, column: str) -> float:
    """Return a bound of the standard error of a load or throughput, from the fullest link's flows.

    One flow drawn anew lowers the maximum only if it crosses that link, so the variance of the
    maximum is at most its mean (Efron and Stein).  The mean load, of all links, has no such error.
    """
    if column not in ("rat_bps", "bottleneck_flows"):
        return 0.0
    return float(row[column] / math.sqrt(row["bottleneck_flows"]))


PAIRS = "the same 10,000 pairs for every scheme, mean"
OUR_PAIRS = "100,000 pairs, mean"
OF_LEVEL_3 = (
    "; for k = 2 both have the same candidates, so this is k = 3; GP_I has those of GP_0, so it is "
    "at most 1"
)
FAULTS = "100 million flows, one set of 10 % failed links, mean"
OUR_FAULTS = "20,000 pairs for each set of failed links, mean of sets"
OUR_DFR = OUR_FAULTS + "; DFR with b = 1, as b = 2 has fewer hops"
TABLE_1 = Statement("table 1", "Properties of the DCNs in our experiments.", "number", "exact")
SHORTER = Statement(
    "section 1",
    "in a fault-free β-DCell, PR with GP_I computes paths that are up to 16% shorter (as regards "
    "hop-length) than DR",
    "up to",
    PAIRS,
)
TEN_PERCENT = Statement(
    "section 1",
    "The gains for level 3 DCNs are significant, but they trail those in β-DCell; for example, the "
    "mean hop-length achieved by PR in DCell is closer to 10% better than that of DR",
    "up to",
    PAIRS + "; no network and no version of GP named",
)
LOW_RADIX = Statement(
    "section 1",
    "for k = 3 we find greater performance gains in low radix (n) DCNs than in high radix ones",
    "order",
    PAIRS,
)
EFFECTIVE = Statement(
    "section 7.1, figure 3",
    "proxy routes are more effective in β-DCell … than in DCell … and FiConn … of comparable size, "
    "with fixed k",
    "order",
    PAIRS,
)
EVEN_FICONN = Statement(
    "section 7.1, figure 3",
    "however, even FiConn … still sees up to a 6–7% improvement",
    "up to",
    PAIRS,
)
THIRD = Statement(
    "section 7.1",
    "PR(src, dst) is shorter than DR(src, dst) for approximately 30% of input pairs when using "
    "GP_I in DCell_3,6",
    "number",
    PAIRS,
)
CANDIDATES = Statement(
    "section 7.1, figure 4",
    "GP_0 considers only 3.9 proxies, on average, for FiConn_3,10, while it considers around 12 "
    "proxies, on average, for DCell_3,6 and β-DCell_3,6",
    "number",
    PAIRS,
)
INVARIABLY = Statement(
    "section 7.1, figure 4",
    "GP_I and GP_0 invariably consider more proxy candidates for DCell_k,n, only to produce proxy "
    "paths that perform better in β-DCell_k,n",
    "order",
    PAIRS,
)
FAR_SHORTER = Statement(
    "section 7.1",
    "the mean distance in β-DCell_3,3 is far shorter than in DCell_3,3",
    "order",
    PAIRS,
)
LARGER_LONGER = Statement(
    "section 7.1, figure 3",
    "Proxy paths in larger networks (when increasing n) are longer than those in smaller networks, "
    "for each DCN with fixed k; for example, compare DCell_3,3 and DCell_3,6, and also FiConn_3,10 "
    "and FiConn_3,16.",
    "order",
    PAIRS,
)
MARGIN = Statement(
    "section 7.1, figure 3",
    "the performance of BFS, relative to DR, also increases with k",
    "order",
    PAIRS,
)
GROW_WITH_K = Statement(
    "section 7.1, figure 3",
    "for each family of DCNs, proxy-path savings increase with k, in every version of GP",
    "order",
    PAIRS,
)
DIFFER_WITH_K = Statement(
    "section 7.1, figure 3",
    "The differences in performance between GP_I and GP_0, and between GP_E and GP_I, grow with k.",
    "order",
    PAIRS,
)
IDENTICAL = Statement(
    "section 7.1, footnote 3",
    "Remember that for k = 2, GP_I and GP_0 are identical.",
    "law",
    PAIRS,
)
ALMOST = Statement(
    "section 7.1, figure 3",
    "for G-Cell_2,*, the performance of GP_E is almost identical to the performance of GP_I",
    "law",
    PAIRS,
)
APPROACH = Statement(
    "section 7.1, figure 3",
    "the savings obtained with GP_E consistently approach, and in some cases equal, those of BFS",
    "law",
    PAIRS,
)
CLOSE = Statement(
    "section 7.1",
    "PR is effective in computing shorter paths and comes fairly close to BFS",
    "law",
    PAIRS,
)
HIGHER_ORDERS = Statement(
    "section 7.1",
    "the shortest paths for these topologies are not always general routes of order at most 3",
    "law",
    PAIRS,
)
PROVIDES = Statement(
    "section 1",
    "when 10% of the links are made faulty (uniformly at random), PR provides 85% connectivity … "
    "[in DCell] the connectivity when 10% of the links are faulty is closer to 80%",
    "number",
    FAULTS + "; β-DCell and DCell, no network named",
)
RESILIENT = Statement(
    "section 7.2, figures 5 and 6",
    "GP_I’s connectivity of 80–90% in level-2 G-Cells, as well as level-3 DCells and β-DCells is "
    "impressive",
    "number",
    FAULTS,
)
FAR_BETTER = Statement(
    "section 7.2, figures 5 and 6",
    "Figs. 5 and 6 show that GP_I performs far better than DR in faulty networks.",
    "order",
    FAULTS,
)
CONNECTED = Statement(
    "section 7.2",
    "for DCell_3,4, DFR achieves around 95% connectivity when 10% of the links have failed, and "
    "GP_I provides around 85%",
    "number",
    FAULTS + "; DFR interpolated from a table of the DCell paper",
)
COMPARABLE = Statement(
    "section 7.2",
    "The (link) fault-tolerance of GP_I is comparable to that of DFR, as evidenced by the data "
    "reported in [12], but GP_I outperforms DFR as regards hop-length.",
    "order",
    FAULTS + "; DFR of the DCell paper",
)
LENGTHS = Statement(
    "section 7.2",
    "the respective mean hop-lengths of paths routed by DFR and GP_I are 14 and 10.7. In the "
    "absence of faults DR routes paths of average hop-length 10.2",
    "number",
    "DCell_3,4, " + FAULTS,
)
PENALTY = Statement(
    "section 7.2",
    "DFR incurs a path-length penalty of over 35%, whereas GP_I incurs 5%. For β-DCell_3,4 the "
    "path-length penalty for GP_I is 0%",
    "number",
    FAULTS,
)
LONGER_DFR = Statement(
    "section 1",
    "DFR computes paths that are over 35% longer than those computed by PR with GP_I",
    "number",
    FAULTS,
)
CONSISTENT = Statement(
    "section 7.2",
    "The results of our fault-tolerance experiments for many all-to-all and one-to-all traffic "
    "patterns are consistent with these results",
    "law",
    FAULTS,
)
NOT_MUCH_WORSE = Statement(
    "section 7.2, figures 7 to 9",
    "the paths found by GP_I in a 10% faulty network, are not much worse than those found by DR in "
    "a fault-free network",
    "law",
    FAULTS,
)
PARITY = Statement(
    "section 7.2, figure 9",
    "The parity artefacts for FiConn in Fig. 9, where there tend to be more odd-length than "
    "even-length paths … both GP_I and DR are less likely to route paths with exactly one level-0 "
    "terminal hop.",
    "order",
    "FiConn_3,10, 100 million flows; a path is even if one of its two end hops is of level 0",
)
FEW_LONG = Statement(
    "section 7.2, figures 7 and 8",
    "only a few of the GP_I-routes being much longer than the maximum length DR-route, i.e., 15 "
    "hops",
    "law",
    FAULTS,
)
MORE_LONG = Statement(
    "section 7.2, figure 9",
    "In Fig. 9 there is a greater number of longer GP_I-routes, where most of them are no longer "
    "than 19 hops; however, nearly 35% of the routes found by DR in FiConn_3,10 are already 15 "
    "hops",
    "number",
    FAULTS,
)
TAR = Statement(
    "section 7.2",
    "in the results for FiConn of [17], TAR computed paths that are 15-30% longer, on average, "
    "than those computed by TOR",
    "number",
    "the loads of another paper",
)
USAGE = Statement(
    "figures 10 and 11",
    "Figs. 10 and 11 show that GP_I indeed reduces the overall network usage in (β-)DCell …, and "
    "that it also reduces the number of flows in the most congested link(s)",
    "order",
    "100 million flows",
)
NOT_REDUCED = Statement(
    "figure 12",
    "Fig. 12 … show that GP_I does not reduce the bottleneck congestion in FiConn",
    "order",
    "100 million flows",
)
TEN_MILLION = "10 million flows"
BENEFIT = Statement(
    "section 7.3, figure 13a",
    "If we focus on the UAT then we can see that all the networks benefit from every version of "
    "GP.",
    "order",
    "100 million flows",
)
FIVE_PERCENT = Statement(
    "section 7.3, figure 13a",
    "The improvement in Θ_U for FiConn_k,n, with k ∈ {2, 3}, and (β-)DCell_2,n is below 5%",
    "up to",
    "100 million flows, all versions of GP",
)
THIRTY = Statement(
    "section 7.3, figure 13a",
    "however, it is as high as 30% for (β-)DCell_3,n",
    "up to",
    "100 million flows, all versions of GP",
)
CONSIDERABLE = Statement(
    "section 7.3, figure 13a",
    "considerable improvement is obtained by GP_0",
    "law",
    "100 million flows, (β-)DCell_3,n",
)
STEPS = Statement(
    "section 7.3, figure 13a",
    "considerable improvement is obtained by GP_0, with GP_I yielding about 5% more, and, finally, "
    "with GP_E yielding an additional 5% more",
    "number",
    "100 million flows, (β-)DCell_3,n",
)
LARGER_RAT = Statement(
    "section 7.3, figure 13b",
    "The differences in RAT between GP_E, GP_I, and GP_0 tend to be larger than the differences in "
    "UAT.",
    "order",
    "100 million flows",
)
NO_EFFECT = Statement(
    "section 7.3, figure 13b",
    "PR has no effect on the RAT of FiConn_2,36, and it has, in fact, a negative effect on "
    "FiConn_3,10",
    "law",
    "100 million flows, all versions of GP",
)
DRAMATIC_GPI = Statement(
    "section 1",
    "when comparing PR with GP_I in β-DCell against DR, we obtain a dramatic 55% improvement in "
    "throughput",
    "up to",
    "100 million flows; β-DCell, no network named",
)
MUCH_GREATER = Statement(
    "section 7.3, figure 13b",
    "It is usually the case that for (β-)DCell, the improvement in RAT is much greater than the "
    "improvement in UAT",
    "order",
    "100 million flows, all versions of GP",
)
ASTONISHING = Statement(
    "section 7.3, figure 13b",
    "the improvement in RAT … can be up to an astonishing 55%",
    "up to",
    "100 million flows, (β-)DCell, all versions of GP",
)
COSTS = Statement(
    "section 7.4",
    "In both cases L_s is 10µs. … we get an estimate of 22µs. … we get 38µs per full frame.",
    "number",
    "two servers in a rack",
)
TABLE_2 = Statement(
    "table 2",
    "Average zero-load latencies in milliseconds.",
    "number",
    "mean hops times the latency of a hop, with the routing time of the authors' machine",
)
REDUCTION = Statement(
    "section 7.4",
    "GP_0 shows a latency reduction of between 2% and 10%, whereas GP_I provides negligible "
    "differences for FiConn and DCell and a 7% improvement for β-DCell. Using GP_E slows down "
    "packet transmission significantly (up to 75% in the worst case)",
    "number",
    "table 2",
)
TRIALS = "flows of 1 GB, links of 1 Gbit/s, mean of 10 trials"
ALWAYS = Statement(
    "section 7.5, figure 14",
    "With DCell and β-DCell, the use of PR always improves upon DR.",
    "order",
    TRIALS,
)
FASTER = Statement(
    "section 8",
    "PR completes a number of realistic benchmark DCN workloads up to 40% faster in β-DCell, and "
    "up to 35% faster in DCell, than the existing dimensional routing algorithm",
    "up to",
    TRIALS,
)
BEST = Statement(
    "section 7.5, figure 14",
    "As expected, GP_E … results in the best routing algorithm for both level 2 and 3 DCNs.",
    "order",
    TRIALS,
)
LIGHT = Statement(
    "section 8",
    "light workloads nevertheless benefit from the shorter paths computed by PR",
    "order",
    TRIALS + "; FiConn",
)
POOR = Statement(
    "section 7.5, figure 14",
    "The results for random uniform and many all-to-all traffic patterns are poor in FiConn",
    "law",
    TRIALS,
)
MARGINAL = Statement(
    "section 7.5, figure 14",
    "Areas of the network further away from the source server-node are not highly loaded, so PR "
    "makes marginal gains over DR by routing on shorter paths.",
    "order",
    TRIALS,
)
TABLES = (
    Claim(
        "sizes of the nine networks that are as printed",
        TABLE_1,
        100,
        Query("ccrdn_properties", {}, "as_in_paper", form=Form.PERCENT, statistic=min),
        within(0),
    ),
)
DEEP = tuple(name for family in FAMILIES for name in named(family, 3))
HOPS = (
    Claim(
        "GP_I shortens DR's routes by, maximum over β3,3, β3,4 and β3,6",
        SHORTER,
        16,
        hops(sizes("β", 3), "pr-gpi", over=DR, form=Form.SAVING, statistic=max, seeds=10),
        within(0.05),
        OUR_PAIRS,
        in_readme=True,
    ),
    Claim(
        "GP_I shortens DR's routes by, maximum over D3,3, D3,4 and D3,6",
        TEN_PERCENT,
        10,
        hops(sizes("D", 3), "pr-gpi", over=DR, form=Form.SAVING, statistic=max, seeds=10),
        within(0.1),
        OUR_PAIRS,
    ),
    *(
        Claim(
            f"length of GP_I's routes over DR's, {small} over {large}",
            LOW_RADIX,
            "below 1",
            hops(network(small), "pr-gpi", over=DR, against={"topology": network(large)}),
            below(1),
            OUR_PAIRS + "; of all gains, that of hop-length",
        )
        for small, large in (("D3,3", "D3,6"), ("β3,3", "β3,6"), ("F3,8", "F3,16"))
    ),
    Claim(
        "PR shortens DR's routes by, maximum over F2,22, F2,36, F2,48, F3,8, F3,10 and F3,16",
        EVEN_FICONN,
        "6 to 7 %",
        hops((*sizes("F", 2), *sizes("F", 3)), PROXIES, over=DR, form=Form.SAVING, statistic=max),
        between(6, 7),
        OUR_PAIRS + ", maximum over the versions of GP",
        why_less="Even shortest paths save less than that on these networks.",
    ),
    *(
        Claim(
            f"length of GP_I's routes over DR's, {beta} over {other}",
            EFFECTIVE,
            "below 1",
            hops(network(beta), "pr-gpi", over=DR, against={"topology": network(other)}),
            below(1),
            OUR_PAIRS,
        )
        for beta, other in (
            *((f"β3,{n}", f"D3,{n}") for n in LEVEL_3["β"]),
            *(("β3,3", "F3,8"), ("β3,4", "F3,10"), ("β3,6", "F3,16")),
            *((f"β2,{n}", f"D2,{n}") for n in LEVEL_2["β"]),
            *(("β2,11", "F2,22"), ("β2,18", "F2,36")),
        )
    ),
    Claim(
        "pairs that GP_I shortens, D3,6",
        THIRD,
        30,
        hops(network("D3,6"), "pr-gpi", "shorter_fraction", form=Form.PERCENT),
        within(0.1),
        OUR_PAIRS,
    ),
    *(
        Claim(
            f"candidates of GP_0 for a pair, {name}",
            CANDIDATES,
            paper,
            hops(network(name), "pr-gp0", "candidates_per_pair", error=of_pairs),
            within(0.05),
            OUR_PAIRS,
            why_less="One server in eight has a link of level 3, so the switches of both ends "
            "offer a quarter of n proxies. F3,16 offers four.",
        )
        for name, paper in (("D3,6", 12), ("β3,6", 12), ("F3,10", 3.9))
    ),
    *(
        Claim(
            f"candidates of {version} for a pair, D3,{n} over β3,{n}",
            INVARIABLY,
            "more",
            hops(
                network(f"D3,{n}"),
                VERSIONS[version],
                "candidates_per_pair",
                over={"topology": network(f"β3,{n}")},
                error=of_pairs,
            ),
            at_least(1.01),
            OUR_PAIRS + "; other pairs on each network; 'more' as 1 %",
            why_less="Both have the same number to within a thousandth.",
        )
        for version in ("GP_I", "GP_0")
        for n in (3, 6)
    ),
    Claim(
        "mean distance, β3,3 over D3,3",
        FAR_SHORTER,
        "far shorter",
        hops(network("β3,3"), "bfs", over={"topology": network("D3,3")}, error=of_pairs),
        below(1),
        "paths from a sample of sources; the order alone, as 'far' has no number",
    ),
    *(
        Claim(
            f"hops of {version}, {larger} over {smaller}",
            LARGER_LONGER,
            "above 1",
            hops(
                network(larger),
                VERSIONS[version],
                over={"topology": network(smaller)},
                error=of_pairs,
            ),
            above(1),
            OUR_PAIRS,
        )
        for larger, smaller in (("D3,6", "D3,3"), ("F3,16", "F3,10"))
        for version in VERSIONS
    ),
    *(
        Claim(
            f"hops, {larger} over {smaller}, minimum over the versions of GP",
            LARGER_LONGER,
            "above 1",
            hops(
                network(larger),
                PROXIES,
                over={"topology": network(smaller)},
                statistic=min,
                error=of_pairs,
            ),
            above(1),
            OUR_PAIRS,
        )
        for larger, smaller in (
            ("β3,6", "β3,3"),
            ("D2,43", "D2,11"),
            ("β2,43", "β2,11"),
            ("F2,48", "F2,22"),
        )
    ),
    *(
        Claim(
            f"length over DR's, k = 3 over k = 2, maximum over the versions of GP: {three} and "
            f"{two}",
            GROW_WITH_K,
            "below 1",
            hops(
                network(three), PROXIES, over=DR, against={"topology": network(two)}, statistic=max
            ),
            below(1),
            OUR_PAIRS,
        )
        for three, two in DEEPER
    ),
    *(
        Claim(
            f"shortest paths over DR's routes, k = 3 over k = 2: {three} and {two}",
            MARGIN,
            "below 1",
            hops(
                network(three), "bfs", over=DR, against={"topology": network(two)}, error=of_pairs
            ),
            below(1),
            "paths from a sample of sources, DR's of 100,000 pairs",
        )
        for three, two in DEEPER
    ),
    *(
        Claim(
            f"length of {better} over that of {worse}, k = 3 over k = 2: {three} and {two}",
            DIFFER_WITH_K,
            "below 1",
            hops(
                network(three),
                VERSIONS[better],
                over={"routing": VERSIONS[worse]},
                against={"topology": network(two)},
            ),
            below(1),
            OUR_PAIRS + OF_LEVEL_3 * (worse == "GP_0"),
        )
        for three, two in DEEPER
        for better, worse in (("GP_I", "GP_0"), ("GP_E", "GP_I"))
    ),
    *(
        Claim(
            f"hops of GP_0 over those of GP_I, {name}",
            IDENTICAL,
            1,
            hops(network(name), "pr-gp0", over={"routing": "pr-gpi"}),
            within(0),
            OUR_PAIRS,
        )
        for name in ("D2,18", "β2,18", "F2,36")
    ),
    *(
        Claim(
            f"GP_E's routes are shorter than GP_I's by, maximum over {listed(named(family, 2))}",
            ALMOST,
            "almost 0 %",
            hops(
                sizes(family, 2),
                "pr-gpe",
                over={"routing": "pr-gpi"},
                form=Form.SAVING,
                statistic=max,
            ),
            between(0, 0.2),
            OUR_PAIRS + "; 'almost' as 0.2 %",
        )
        for family in FAMILIES
    ),
    Claim(
        "GP_E's routes are longer than shortest paths by, D2,18",
        APPROACH,
        "in some cases 0 %",
        hops(network("D2,18"), "pr-gpe", over={"routing": "bfs"}, form=Form.GAIN, error=of_pairs),
        between(-0.2, 0.2),
        "other pairs for shortest paths, from a sample of sources; 'equal' as 0.2 %",
    ),
    Claim(
        f"GP_E's routes are longer than shortest paths by, maximum over {listed(DEEP)}",
        CLOSE,
        "fairly close",
        hops(
            networks(*DEEP),
            "pr-gpe",
            over={"routing": "bfs"},
            form=Form.GAIN,
            statistic=max,
            error=of_pairs,
        ),
        at_most(10),
        "other pairs for shortest paths, from a sample of sources; 'fairly close' as 10 %",
    ),
    Claim(
        "GP_E's routes are longer than shortest paths by, maximum over D3,3 and β3,3",
        HIGHER_ORDERS,
        "above 0 %",
        hops(
            networks("D3,3", "β3,3"),
            "pr-gpe",
            over={"routing": "bfs"},
            form=Form.GAIN,
            statistic=max,
            error=of_pairs,
        ),
        ours=OUR_PAIRS + "; other pairs for shortest paths",
        apart="A general route of order 3 takes any path inside a copy; GP_E's takes DR's. A test "
        "finds pairs that need a higher order (tests/experiments/ccrdn/test_higher_orders.py).",
    ),
)


def share_of_hops(
    name: str,
    routing: str,
    failed_fraction: float,
    bins: tuple[int, int, int],
    per: Query | None = None,
) -> Query:
    """Return the share of routes that have so many hops, or its ratio to that of `per`."""
    where = {
        "topology": network(name),
        "routing": routing,
        "failed_fraction": failed_fraction,
    }
    column, routes = "pairs_by_hops_fraction", "connected_fraction"
    return Query("hop_histogram", where, column, by=routes, form=Form.PERCENT, bins=bins, per=per)


LONG = (16, 99, 1)  # above the longest of DR


def penalty(name: str, routing: str) -> Query:
    """Return by how much routes under faults are longer than DR's without."""
    over = {"routing": "dr", "failed_fraction": 0.0}
    return faulty(network(name), routing, "mean_hops", over=over, form=Form.GAIN, seeds=10)


RESILIENCE = (
    *(
        Claim(
            f"pairs that GP_I connects, {words} over {', '.join(names)}",
            PROVIDES,
            paper,
            faulty(networks(*names), "pr-gpi", form=Form.PERCENT, statistic=statistic),
            within(0.05),
            OUR_FAULTS,
        )
        for names, paper in ((("β3,3", "β3,4", "β3,6"), 85), (("D3,3", "D3,4", "D3,6"), 80))
        for words, statistic in (("minimum", min), ("maximum", max))
    ),
    *(
        Claim(
            f"pairs that GP_I connects, {words} over {listed(named(family, level))}",
            RESILIENT,
            "80 to 90 %",
            faulty(
                sizes(family, level),
                "pr-gpi",
                form=Form.PERCENT,
                statistic=statistic,
                seeds=10 if (family, level) == ("F", 2) else 5,
            ),
            between(78, 92),
            OUR_FAULTS + "; 2 points beside a range in tens",
        )
        for family, level in (("D", 2), ("β", 2), ("F", 2), ("D", 3), ("β", 3))
        for words, statistic in (("minimum", min), ("maximum", max))
    ),
    Claim(
        "pairs that GP_I connects over those that DR connects, minimum over our 18 networks",
        FAR_BETTER,
        "far better",
        faulty(
            tuple(
                topology
                for level in (2, 3)
                for family in FAMILIES
                for topology in sizes(family, level)
            ),
            "pr-gpi",
            over=DR,
            statistic=min,
        ),
        at_least(1.5),
        OUR_FAULTS + "; 'far' as half more",
    ),
    *(
        Claim(
            f"pairs that DFR with b = {b} connects, D3,4",
            CONNECTED,
            95,
            faulty(network("D3,4"), routing, form=Form.PERCENT, seeds=10),
            within(0.05),
            OUR_FAULTS,
            in_readme=b == 1,
        )
        for b, routing in ((1, "dfr"), (2, "dfr:b=2"))
    ),
    Claim(
        "pairs that GP_I connects, D3,4",
        CONNECTED,
        85,
        faulty(network("D3,4"), "pr-gpi", form=Form.PERCENT, seeds=10),
        within(0.05),
        OUR_FAULTS,
    ),
    Claim(
        "pairs that GP_I connects over those that DFR connects, D3,4",
        COMPARABLE,
        "comparable",
        faulty(network("D3,4"), "pr-gpi", over={"routing": "dfr"}, seeds=10),
        between(0.8, 1.25),
        OUR_DFR + "; 'comparable' as a fifth less or a fourth more",
    ),
    Claim(
        "mean hops of GP_I over those of DFR, under faults, D3,4",
        COMPARABLE,
        "below 1",
        faulty(network("D3,4"), "pr-gpi", "mean_hops", over={"routing": "dfr"}, seeds=10),
        below(1),
        OUR_DFR,
    ),
    *(
        Claim(
            f"mean hops of DFR with b = {b} under faults, D3,4",
            LENGTHS,
            14,
            faulty(network("D3,4"), routing, "mean_hops", seeds=10),
            ours=OUR_FAULTS,
            apart="The length depends on DFR's b, which is not printed.",
        )
        for b, routing in ((1, "dfr"), (2, "dfr:b=2"))
    ),
    Claim(
        "mean hops of GP_I under faults, D3,4",
        LENGTHS,
        10.7,
        faulty(network("D3,4"), "pr-gpi", "mean_hops", seeds=10),
        within(0.05),
        OUR_FAULTS,
        why_more="The printed number is that of D3,3, where ours agrees.",
    ),
    Claim(
        "mean hops of DR, D3,4",
        LENGTHS,
        10.2,
        hops(network("D3,4"), "dr"),
        within(0.05),
        OUR_PAIRS,
        why_more="The printed number is that of D3,3; table 2's latency over the costs of a hop "
        "gives ours.",
    ),
    *(
        Claim(
            f"routes under faults are longer than DR's without: {words}",
            PENALTY,
            paper,
            penalty(name, routing),
            rule,
            OUR_DFR if routing == "dfr" else OUR_FAULTS,
            why_less="The paper divides by DR's 10.2 hops, which are those of D3,3.",
        )
        for words, name, routing, paper, rule in (
            ("DFR, D3,4", "D3,4", "dfr", "over 35 %", above(35)),
            ("GP_I, D3,4", "D3,4", "pr-gpi", "5 %", between(4, 6)),
            ("GP_I, β3,4", "β3,4", "pr-gpi", "0 %", between(-1, 1)),
        )
    ),
    Claim(
        "routes of DFR under faults are longer than GP_I's, D3,4",
        LONGER_DFR,
        "over 35 %",
        faulty(
            network("D3,4"),
            "dfr",
            "mean_hops",
            over={"routing": "pr-gpi"},
            form=Form.GAIN,
            seeds=10,
        ),
        above(35),
        OUR_DFR,
        why_less="The paper's own 14 and 10.7 hops make less than 35 %, and 10.7 is D3,3's; 35 % "
        "is over DR without faults.",
    ),
    *(
        Claim(
            f"GP_I connects more {words} than with uniform traffic, D3,4",
            CONSISTENT,
            "0 %",
            faulty(
                network("D3,4"),
                "pr-gpi",
                over={"traffic": "uniform"},
                form=Form.GAIN,
                seeds=10,
                traffic=traffic,
            ),
            between(-2, 2),
            OUR_FAULTS + size + "; 'consistent' as 2 %",
        )
        for words, traffic, size in (
            (
                "with groups of 50",
                "many-all-to-all:group=50",
                "; groups of 50 are ours, as the paper prints no size of them",
            ),
            ("from one server to all", "one-to-all", ""),
        )
    ),
    *(
        Claim(
            f"mean hops of GP_I under faults above DR's without, {name}",
            NOT_MUCH_WORSE,
            "not much worse",
            Query(
                "hop_histogram",
                {"topology": network(name), "routing": "pr-gpi", "failed_fraction": 0.1},
                "mean_hops",
                {"routing": "dr", "failed_fraction": 0.0},
                Form.GAIN,
            ),
            None if name == "F3,10" else at_most(10),
            TEN_MILLION + ("" if name == "F3,10" else "; 'not much' as 10 %"),
            apart="'Not much' has no number, and the next sentence grants more long routes in "
            "figure 9, that of FiConn."
            if name == "F3,10"
            else "",
        )
        for name in ("D3,3", "β3,3", "F3,10")
    ),
    *(
        Claim(
            f"routes over 15 hops, GP_I under faults, {name}",
            FEW_LONG,
            "few",
            share_of_hops(name, "pr-gpi", 0.1, LONG),
            at_most(5),
            TEN_MILLION + "; 'only a few' as 5 %, 'much longer' as any longer",
        )
        for name in ("D3,3", "β3,3")
    ),
    Claim(
        "routes over 15 hops, GP_I under faults, F3,10 over D3,3",
        MORE_LONG,
        "above 1",
        share_of_hops("F3,10", "pr-gpi", 0.1, LONG, per=share_of_hops("D3,3", "pr-gpi", 0.1, LONG)),
        above(1),
        TEN_MILLION,
    ),
    Claim(
        "routes over 19 hops, GP_I under faults, F3,10",
        MORE_LONG,
        "a minority of the longer routes",
        share_of_hops("F3,10", "pr-gpi", 0.1, (20, 99, 1)),
        at_most(5),
        TEN_MILLION + "; of all routes; 'most' as all but 5 %",
    ),
    Claim(
        "routes of 15 hops, DR on F3,10",
        replace(MORE_LONG, setting="FiConn_3,10 without faults, 100 million flows"),
        35,
        share_of_hops("F3,10", "dr", 0.0, (15, 15, 1)),
        within(0.05),
        TEN_MILLION,
    ),
    *(
        Claim(
            f"routes with an odd number of hops, {version} on F3,10",
            PARITY,
            "above 50 %",
            share_of_hops("F3,10", routing, 0.0, (1, 99, 2)),
            above(50),
            TEN_MILLION,
        )
        for version, routing in (("DR", "dr"), ("GP_I", "pr-gpi"))
    ),
    *(
        Claim(
            f"routes of TAR are longer than DR's, {name}",
            TAR,
            "15 to 30 %",
            hops(network(name), "tar", over=DR, form=Form.GAIN),
            ours="100,000 flows that stay, whatever the network's size",
            apart="The length depends on the flows that a server has, and the paper gives no load.",
        )
        for name in ("F2,36", "F3,10")
    ),
)


def loaded(name: str, column: str) -> Query:
    """Return by how much GP_I changes the flows of a link."""
    where = {"topology": network(name), "routing": "pr-gpi"}
    return Query("flow_histogram", where, column, DR, Form.GAIN, error=of_flows)


def carried(
    column: str,
    names: tuple[str, ...],
    versions: Any,
    statistic: Any = max,
    flows: int = FLOWS,
    **more: Any,
) -> Query:
    """Return by how much throughput is above DR's: an extreme over networks and versions."""
    where = {
        "topology": networks(*names),
        "routing": versions,
        "traffic": f"uniform:flows={flows}",
    }
    return Query("throughput", where, column, DR, Form.GAIN, statistic=statistic, **more)


def further(column: str, name: str, **more: Any) -> Query:
    """Return how many points of DR's throughput GP_E gains beyond GP_0."""
    error = of_flows if column == "rat_bps" else None
    less = carried(column, (name,), "pr-gp0", error=error)
    return carried(column, (name,), "pr-gpe", less=less, error=error, **more)


NUMBER_OF_FLOWS = (
    "The gain of RAT depends on the number of flows. On β3,3 and β3,4 that of GP_I is greater with "
    "ten million than with 100 million, for chance lifts DR's fullest link more."
)
OF_LINKS = (
    "A hop over a switch is two links, and routes over a proxy have fewer of these. Of routes as "
    "long as DR's the less loaded one has fewer, too."
)
LEVEL_3_CELLS = ("D3,3", "D3,4", "β3,3", "β3,4")
LEVEL_2_CELLS = ("D2,18", "β2,18")
TIES = "PR leaves DR for a route as long and less loaded"
# by the latter alone PR leaves DR for a route as long
UNSAID = (
    "whether Algorithm 1 (shorter routes alone) or section 5.4 (the least loaded shortest) holds"
)
TRIALS_ALONE = 10
BOTH_TIES = {  # networks that were measured with choice=3, too
    "flow_histogram": networks("D3,3", "β3,3"),
    "throughput": networks(
        "D2,11", "β2,11", "F3,8", *LEVEL_2_CELLS, "F2,36", "F3,10", "D3,3", "β3,3"
    ),
    "completion_time": networks("D3,4", "β3,4"),
}


def shorter_alone(query: Query) -> Query | None:
    """Return a figure of PR that leaves DR for shorter routes alone; None if it has no rows."""
    where = query.where
    topologies, schemes = (as_tuple(where[key]) for key in ("topology", "routing"))
    in_rows = {
        "flow_histogram": True,
        "throughput": where.get("traffic") == f"uniform:flows={FLOWS}",
        "completion_time": where.get("workload") == "one-to-all" and schemes == ("pr-gpe",),
    }
    if not (set(topologies) <= set(BOTH_TIES[query.experiment]) and in_rows[query.experiment]):
        return None
    return replace(
        query,
        where={**where, "routing": tuple(f"{name}:choice=3" for name in schemes)},
        less=query.less and shorter_alone(query.less),
        per=query.per and shorter_alone(query.per),
        seeds=query.seeds and TRIALS_ALONE,
    )


def as_tuple(values: Any) -> tuple[Any, ...]:
    """Return one value, or several, of a parameter."""
    return values if isinstance(values, tuple) else (values,)


def by_ties(claim: Claim) -> Claim:
    """Return a claim on PR under load, by both rules for ties with DR if rows have both."""
    ours = f"{claim.ours or 'the same'}; {TIES}"
    assert claim.query
    other = shorter_alone(claim.query)
    if not other:
        return replace(claim, ours=ours)
    ours += ", then for a shorter one alone" + f", {other.seeds} trials" * bool(other.seeds)
    return replace(claim, ours=ours, otherwise=other, unnamed=UNSAID)


OF_FICONN = "The 6 to 7 % of hops that section 7.1 has for FiConn would gain more than that, too."
OF_NUMBER = "; the size of RAT's gain depends on the number of flows"
POINTS = TEN_MILLION + "; points of DR's, by which figure 13 divides"
ALL = (*LEVEL_3_CELLS, *LEVEL_2_CELLS, "F2,36", "F3,10")
LOAD = (
    *(
        Claim(
            f"flows on {words} link, GP_I over DR, {name}",
            USAGE,
            "below 0 %",
            loaded(name, column),
            below(0),
            TEN_MILLION,
        )
        for name in ("D3,3", "β3,3")
        for words, column in (("a mean", "mean_flows"), ("the most loaded", "bottleneck_flows"))
    ),
    Claim(
        "flows on the most loaded link, GP_I over DR, F3,10",
        NOT_REDUCED,
        "at least 0 %",
        loaded("F3,10", "bottleneck_flows"),
        at_least(0),
        TEN_MILLION,
    ),
    Claim(
        "UAT gain, minimum over eight networks and the versions of GP: " + ", ".join(ALL),
        BENEFIT,
        "above 0 %",
        carried("uat_bps", ALL, PROXIES, min),
        above(0),
        TEN_MILLION + "; eight of the paper's networks",
    ),
    *(
        Claim(
            f"UAT gain of {words}, {name}",
            FIVE_PERCENT,
            "below 5 %",
            carried("uat_bps", (name,), versions),
            below(5),
            TEN_MILLION,
            why_more=OF_FICONN if name.startswith("F") else OF_LINKS,
        )
        for words, versions, names in (
            ("GP, maximum over its versions", PROXIES, ("F2,36", "F3,10", *LEVEL_2_CELLS)),
            ("GP_E", "pr-gpe", ("F3,8", "D2,11", "β2,11")),
        )
        for name in names
    ),
    Claim(
        f"UAT gain, maximum over the versions of GP and {', '.join(LEVEL_3_CELLS)}",
        THIRTY,
        30,
        carried("uat_bps", LEVEL_3_CELLS, PROXIES),
        within(0.1),
        TEN_MILLION,
    ),
    *(
        Claim(
            f"UAT gain of GP_0, {name}",
            CONSIDERABLE,
            "considerable",
            carried("uat_bps", (name,), "pr-gp0"),
            at_least(10),
            TEN_MILLION + "; 'considerable' as 10 %",
        )
        for name in LEVEL_3_CELLS
    ),
    *(
        Claim(
            f"UAT gain of {better} less that of {worse}, {name}",
            STEPS,
            5,
            carried(
                "uat_bps",
                (name,),
                VERSIONS[better],
                less=carried("uat_bps", (name,), VERSIONS[worse]),
            ),
            within(0.3),
            TEN_MILLION + "; points of DR's, by which figure 13 divides",
            why_less="The printed step is that of β-DCell. Here the further candidates shorten the "
            f"mean route {less} as much.",
        )
        for name in LEVEL_3_CELLS
        for better, worse, less in (
            ("GP_I", "GP_0", "at most an eighth"),
            ("GP_E", "GP_I", "about half"),
        )
    ),
    Claim(
        "RAT gain of GP_I, maximum over β3,3 and β3,4",
        DRAMATIC_GPI,
        55,
        carried("rat_bps", ("β3,3", "β3,4"), "pr-gpi", flows=100_000_000, error=of_flows),
        within(0.1),
        "one set of flows for each network",
        why_less="One set of flows leaves a doubt of 3 points; fewer flows give more.",
    ),
    *(
        Claim(
            f"RAT gain of GP_E less that of GP_0, over the same of UAT, {name}",
            LARGER_RAT,
            "above 1",
            further("rat_bps", name, per=further("uat_bps", name)),
            above(1),
            POINTS + OF_NUMBER,
        )
        for name in (*LEVEL_3_CELLS, "F3,10")
    ),
    *(
        Claim(
            f"gain of RAT over gain of UAT, GP_I against DR, {name}",
            MUCH_GREATER,
            "much greater",
            carried(
                "rat_bps",
                (name,),
                "pr-gpi",
                flows=100_000_000,
                per=carried("uat_bps", (name,), "pr-gpi", flows=100_000_000),
                error=of_flows,
            ),
            at_least(1.5),
            "GP_I alone, of three; 'much' as half more",
        )
        for name in ("β3,3", "β3,4")
    ),
    *(
        Claim(
            f"gain of RAT over gain of UAT, GP_E against DR, {name}",
            MUCH_GREATER,
            "much greater",
            carried(
                "rat_bps",
                (name,),
                "pr-gpe",
                per=carried("uat_bps", (name,), "pr-gpe"),
                error=of_flows,
            ),
            ours=TEN_MILLION,
            apart=NUMBER_OF_FLOWS,
        )
        for name in ("D3,3", "D3,4", *LEVEL_2_CELLS)
    ),
    Claim(
        f"RAT gain, maximum over the versions of GP and {', '.join(LEVEL_3_CELLS)}",
        ASTONISHING,
        "up to 55 %",
        carried("rat_bps", LEVEL_3_CELLS, PROXIES, error=of_flows),
        ours=TEN_MILLION + "; it is GP_E's on β3,4",
        apart=NUMBER_OF_FLOWS,
    ),
    *(
        Claim(
            f"RAT gain of {version}, {name}",
            NO_EFFECT,
            "0 %" if name == "F2,36" else "below 0 %",
            carried("rat_bps", (name,), VERSIONS[version], error=of_flows),
            between(-5, 5) if name == "F2,36" else below(0),
            TEN_MILLION + OF_NUMBER + ("; 'no effect' as 5 %" if name == "F2,36" else ""),
        )
        for name in ("F2,36", "F3,10")
        for version in VERSIONS
    ),
)
SEARCH = (
    "Table 2 has the time of the authors' search, fifty to three hundred times ours. It is a fifth "
    "to a half of GP_E's latency, and less than a tenth of GP_I's."
)


def latency(name: str, scheme: str, **more: Any) -> Query:
    """Return a latency of table 2."""
    where = {
        "topology": network(name),
        "routing": {"DR": "dr", **VERSIONS}[scheme],
        "costs": "paper",
    }
    return Query("zero_load_latency", where, "latency_ms", **more)


OUR_SEARCH = "routing time of this machine, compiled"
OF_HOPS = "70 µs a hop are the paper's, so that hops are compared; " + OUR_SEARCH
SHORT_SEARCH = (
    "The printed saving is less the time of the authors' search, some hundredths of the latency. "
    "Ours takes less than a thousandth."
)
LONG_SEARCH = ("GP_I", "GP_E")  # their time of search is no small part of the paper's latency
LATENCY = (
    Claim(
        "latency of stack, propagation and data for a hop",
        COSTS,
        "10, 22 and 38 µs",
        missing="These are costs of the authors' machine; our table 2 takes them as they are.",
    ),
    *(
        Claim(
            f"latency without load, {name}, {scheme}",
            TABLE_2,
            paper,
            latency(name, scheme),
            None if scheme in LONG_SEARCH else within(0.05),
            OF_HOPS,
            apart=SEARCH if scheme in LONG_SEARCH else "",
        )
        for name, row in (
            ("F3,10", (0.913, 0.894, 0.908, 1.122)),
            ("D3,4", (0.795, 0.752, 0.796, 1.400)),
            ("β3,4", (0.794, 0.714, 0.742, 1.361)),
        )
        for scheme, paper in zip(("DR", *VERSIONS), row, strict=True)
    ),
    *(
        Claim(
            f"{version} shortens DR's latency by, {name}",
            REDUCTION,
            paper,
            latency(name, version, over=DR, form=Form.SAVING),
            ours=OF_HOPS,
            apart=SHORT_SEARCH if version == "GP_0" else SEARCH,
        )
        for version, names, paper in (
            ("GP_0", ("F3,10", "D3,4", "β3,4"), "2 to 10 %"),
            ("GP_I", ("F3,10", "D3,4"), "negligible"),
            ("GP_I", ("β3,4",), "7 %"),
        )
        for name in names
    ),
    *(
        Claim(
            f"latency of GP_E over DR's, {name}",
            REDUCTION,
            "significantly slower",
            latency(name, "GP_E", over=DR),
            ours=OF_HOPS,
            apart=SEARCH,
        )
        for name in ("F3,10", "D3,4", "β3,4")
    ),
)


WORKLOADS = {  # by the paper's name: ours, and what is not the paper's or not printed
    "one-to-all": ("one-to-all", ""),
    "uniform": (
        "uniform:messages=1",
        "one message of each server, where section 6.2 has 100 million pairs",
    ),
    "groups of 5": (
        "many-all-to-all:group=5",
        "groups of 5 are ours, as the paper prints no size of them",
    ),
}
TOGETHER = "; ends within 5 % of the time are taken together"
DEPTHS = (("D2,18", "β2,18"), ("D3,4", "β3,4"))
ONE_TO_ALL = {"routing": "pr-gpe", "workload": "one-to-all"}


def sooner(words: str, *names: str, routing: Any = "pr-gpe", seeds: int = 3, **more: Any) -> Query:
    """Return by how much GP_E ends a workload sooner than DR."""
    where = {
        "topology": networks(*names),
        "routing": routing,
        "workload": WORKLOADS[words][0],
    }
    query = Query("completion_time", where, "completion_s", DR, Form.SAVING, seeds=seeds)
    return replace(query, **more)


def our_trials(words: str, number: str = "three trials") -> str:
    """Return what of a workload is not the paper's."""
    choice = WORKLOADS[words][1]
    return f"{number}, {choice}{TOGETHER}" if choice else ""


def few(words: str) -> int:
    """Return the trials of a workload under all versions of GP; one-to-all has the paper's."""
    return 10 if words == "one-to-all" else 1


A_STEP = "One trial, and the difference is no larger than a step of the time."
SOURCE = (
    "DR sends three quarters of the messages over one link of the source, GP_E two fifths. On "
    "D3,4 the authors' rule of sharing (sharing=bottleneck) gives the same."
)
COMPLETION = (
    *(
        Claim(
            f"GP ends sooner than DR by, minimum over its versions and {listed(names)}, {words}",
            ALWAYS,
            "above 0 %",
            sooner(words, *names, routing=PROXIES, statistic=min, seeds=few(words)),
            None if (step := few(words) == 1 and names == DEPTHS[0]) else above(0),
            our_trials(words, "one trial"),
            apart=A_STEP if step else "",
        )
        for names in DEPTHS
        for words in WORKLOADS
    ),
    *(
        Claim(
            f"GP_E ends sooner than DR by, {name}, {words}",
            ALWAYS,
            "above 0 %",
            sooner(words, name),
            above(0),
            our_trials(words) + "; GP_E alone, of three",
        )
        for name in DEPTHS[1]
        for words in ("uniform", "groups of 5")
    ),
    *(
        Claim(
            f"GP_0 and GP_I end later than GP_E by, minimum over {listed(names)}, {words}",
            BEST,
            "at least 0 %",
            sooner(
                words,
                *names,
                routing=("pr-gp0", "pr-gpi"),
                over={"routing": "pr-gpe"},
                form=Form.GAIN,
                statistic=min,
                seeds=few(words),
            ),
            None if few(words) == 1 else at_least(0),
            our_trials(words, "one trial"),
            apart=A_STEP if few(words) == 1 else "",
        )
        for names in DEPTHS
        for words in WORKLOADS
    ),
    *(
        Claim(
            f"GP_E ends sooner than DR by, {name}, one-to-all{rule}",
            FASTER,
            paper,
            sooner("one-to-all", seeds=seeds, where={**where, "topology": network(name)}),
            within(0.1),
            f"{seeds} trials of one-to-all, as the others' sizes are not printed or were not run",
            why_more=SOURCE,
        )
        for name, paper, seeds, rule, where in (
            ("β3,4", 40, 30, "", ONE_TO_ALL),
            ("D3,4", 35, 10, "", ONE_TO_ALL),
            ("D3,4", 35, 10, ", sharing=bottleneck", {**ONE_TO_ALL, "sharing": "bottleneck"}),
        )
    ),
    *(
        Claim(
            f"GP_E ends sooner than DR by, F3,10, {words}",
            POOR,
            "poor",
            sooner(words, "F3,10"),
            ours=our_trials(words),
            apart=f"'Poor' has no number, and {size}.",
        )
        for words, size in (
            ("uniform", "ours has one message of each server, the paper 100 million in all"),
            ("groups of 5", "the paper does not print how large its groups are"),
        )
    ),
    *(
        Claim(
            f"GP_E ends sooner than DR by, F3,10, one-to-all: {paper}",
            statement,
            paper,
            sooner("one-to-all", "F3,10", seeds=100),
            rule,
            "100 trials" + words,
        )
        for statement, paper, rule, words in (
            (MARGINAL, "marginal", between(0, 10), "; 'marginal' as 10 %"),
            (LIGHT, "above 0 %", above(0), ""),
        )
    ),
)
FICONNS = (*named("F", 2), *named("F", 3))
EXACT = tuple(f"F2,{n}" for n in (4, 6, 8, 10, 12, 14))
OWN = (
    Claim(
        f"shortest paths shorten DR's routes by, maximum over {listed(FICONNS)}",
        OURS,
        "",
        hops(
            networks(*FICONNS),
            "bfs",
            over=DR,
            form=Form.SAVING,
            statistic=max,
            error=of_pairs,
        ),
        below(6),
        "paths from a sample of sources; so no proxy routes save the 6 to 7 % of section 7.1",
    ),
    *(
        Claim(
            f"hops of {version} over those of shortest paths, maximum over F2,4 to F2,14",
            OURS,
            "",
            Query(
                "hop_length",
                {
                    "topology": networks(*EXACT),
                    "routing": VERSIONS[version],
                    "pairs": "all",
                    "condition1": 0,
                },
                "mean_hops",
                {"routing": "bfs"},
                statistic=max,
            ),
            at_most(1),
            "all pairs of servers, even n; no route is shorter than a shortest path",
        )
        for version in ("GP_I", "GP_E")
    ),
)
CLAIMS = (
    *(*TABLES, *HOPS, *RESILIENCE, *map(by_ties, LOAD)),
    *(*LATENCY, *map(by_ties, COMPLETION), *OWN),
)
