"""Claims of LBSP, in the order of its sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.experiments.report.claims import (
    Claim,
    Form,
    Query,
    Statement,
    StatementKind,
    Sweep,
    Where,
    above,
    at_least,
    at_most,
    between,
)
from weft.experiments.runner.parameters import Scalar

EIGHT: Where = {"topology": "fattree:k=8", "tcp": "reno", "clock": "virtual"}
LBSP = {"scheme": "lbsp"}
HEALTHY = {"damage": "none"}
BALANCED = {"oversubscription": 1}
TAIL = ", 99.9th percentile"
SHORT = "8-ary fat-tree, 32 KB flows, load 0.8 for 3.3 s, TCP Reno"
OUR_SHORT = (
    "10 permutations, 3.3 ms of traffic; Linux' first window, ten packets, is larger than ns-2's"
)
LONG = "8-ary fat-tree, four flows of 100 MB again and again for 20 s, TCP Reno"
OUR_LONG = "the four flows once"
OUR_TAIL = OUR_LONG + "; percentile of four flows"
ONE_PERCENT = "; an order counts from 1 % on"
POD = "16-ary fat-tree, five flows to one pod, one failed link, TCP Reno"
EIGHT_ONLY = "The paper's figure is of a 16-ary fat-tree; ours is of an 8-ary one, with 10 MB."
OUR_POD = "8-ary fat-tree, five flows of 10 MB to one pod, TCP Reno, mean"
FIVE = "8-ary fat-tree, five flows of 10 MB; 99.9th percentile of five, near the slowest"
NO_NETWORK = (
    "The text names no network. Figure 7a is of a 16-ary fat-tree, whose path groups have four "
    "times as many paths. Here several flows share a quarter of the core's paths."
)
DROPS_UNREAD = "The rows count packets that were sent again; drops at ports were not read."
IN_ORDER = (
    "Packet scatter sends nothing again here, and the two flows of one host share its link, which "
    "bounds the slowest."
)
FAILED_SHORT = Statement(
    "section 4, figure 6a",
    "Neither a link failure nor a node failure affects the flow completion time of TCP flows "
    "significantly.",
    StatementKind.LAW,
    SHORT + TAIL,
)
HEALTHY_SHORT = Statement(
    "section 4, figure 6a",
    "the original packet scatter scheme, which distributes packets using more paths, performs "
    "marginally better than LBSP",
    StatementKind.ORDER,
    SHORT + TAIL,
)
NO_BUILD_UP = Statement(
    "section 4, figure 6a",
    "Since the flows are short, the queues do not build up enough to cause packet reordering or "
    "packet drops.",
    StatementKind.LAW,
    SHORT,
)
GREATEST = Statement(
    "section 4, figure 6b",
    "For the original packet scatter scheme, the flow from S3 suffers the greatest degradation of "
    "performance.",
    StatementKind.ORDER,
    LONG,
)
SELDOM = Statement(
    "section 4, figure 6b",
    "In LBSP, however, the flows seldom experience packet reordering.",
    StatementKind.LAW,
    LONG,
)
HEALTHY_LONG = Statement(
    "section 4, figure 6b",
    "When there is no failure in the network, both schemes perform almost equal.",
    StatementKind.LAW,
    LONG + TAIL,
)
FAILED_LONG = Statement(
    "section 4, figure 6b",
    "When a failure occurs at a link between a ToR switch and an aggregation switch, … LBSP "
    "performs better than the original packet scatter scheme despite the disadvantageous scenario.",
    StatementKind.ORDER,
    LONG + TAIL,
)
WIDER_GAP = Statement(
    "section 4, figure 6b",
    "When an aggregation switch in the source pod of the three flows fails, the gap between two "
    "schemes becomes greater",
    StatementKind.ORDER,
    LONG + TAIL,
)
OVERSUBSCRIBED = Statement(
    "section 3.4",
    "Effectiveness of LBSP becomes more evident in fat-trees with high oversubscription ratios, "
    "where queues build up more. If a failure occurs in such a network, network asymmetry and "
    "queue buildup may jointly cause severe packet reordering.",
    StatementKind.LAW,
    "no network and no number",
)
SLIGHTLY = Statement(
    "section 4, figure 7a",
    "For oversubscription ratio of 1:1, a link failure or a node failure does not significantly "
    "affect TCP flow completion time of the original scatter scheme. This was also the case … 4:1",
    StatementKind.LAW,
    POD,
)
DRASTICALLY = Statement(
    "section 4, figure 7a",
    "when the oversubscription ratio was set to 8:1, the flow completion time of the original "
    "packet scatter scheme drastically increases, even when only one link is disconnected. … In "
    "contrast, the flow completion time of LBSP is not affected.",
    StatementKind.LAW,
    POD,
)
NO_DROPS_POD = Statement(
    "section 4, figure 7a",
    "In this case, there was no packet drop.",
    StatementKind.LAW,
    POD + ", 8:1",
)
NO_DROPS_DEGRADED = Statement(
    "section 4, figure 7c",
    "Since there is no packet drop, the performance degradation is only due to out-of-order "
    "packets.",
    StatementKind.LAW,
    "8-ary and 16-ary fat-trees, degraded link, flows of 100 MB, TCP Reno",
)
LESS_AFFECTED = Statement(
    "section 4, figure 7b",
    "performance of LBSP is less affected by a degraded link compared to that of the original "
    "packet scatter scheme",
    StatementKind.ORDER,
    SHORT + TAIL,
)
WORSE_THAN_FAILED = Statement(
    "section 4, figure 7b",
    "the effect of a degraded link on flow completion time is larger than that of a disconnected "
    "link",
    StatementKind.ORDER,
    SHORT + TAIL,
)
ELEVEN = Statement(
    "section 4, figure 7c",
    "For both 8-ary and 16-ary fat-trees, the original packet scatter scheme experiences over "
    "eleven times longer flow completion time than in a normal condition.",
    StatementKind.NUMBER,
    LONG + TAIL,
)
AVOIDED = Statement(
    "section 4, figure 7c",
    "LBSP can avoid such huge degradation of performance by selecting an alternative path group",
    StatementKind.LAW,
    LONG + TAIL,
)
SLOTS = "8-ary fat-tree, 100 permutations of 1,000 slots"
SECOND_HOP = Statement(
    "section 5.2, figure 9a",
    "the queue lengths at the second hop (aggregation switches) are longer than those at the first "
    "hop (ToR switches)",
    StatementKind.ORDER,
    SLOTS,
)
THIRD_HOP = Statement(
    "section 5.2, figure 9a",
    "At the third hop …, the average queue length increases linearly with respect to the offered "
    "load ρ, and remains below 1.",
    StatementKind.LAW,
    SLOTS,
)
NOT_EXCESSIVE = Statement(
    "section 5.2, figure 9a",
    "traffic distribution mechanism prevents the queue lengths from growing excessively",
    StatementKind.LAW,
    SLOTS,
)
APART = Statement(
    "section 5.2, figure 9b",
    "the queue length differences at the second hop are larger than those at the first hop",
    StatementKind.ORDER,
    SLOTS,
)
THREE_HOPS = Statement(
    "section 3.3.1",
    "the failure messages take at most three hops to reach all the aggregation switches and ToR "
    "switches that need the failure information",
    StatementKind.LAW,
    "three-tier fat-trees",
)
REROUTED = Statement(
    "section 3.4",
    "the proportion of the source-destination pairs to be rerouted is approximately 6%",
    StatementKind.NUMBER,
    "8-ary fat-tree, a failed link between a ToR and an aggregation switch",
)


def short(damage: str, scheme: str = "spray") -> Where:
    """Return the cell of short flows."""
    return {**EIGHT, "workload": "short", "damage": damage, "scheme": scheme, "rounds": 10}


def long(damage: str, scheme: str = "spray") -> Where:
    """Return the cell of long flows, at the paper's size."""
    where: Where = {"workload": "long", "damage": damage, "flow_bytes": 100_000_000}
    return {**EIGHT, **where, "scheme": scheme}


def pod(oversubscription: int, scheme: str = "spray") -> Where:
    """Return the cell of flows to a pod, with a failed link."""
    where: Where = {"workload": "pod", "damage": "link", "flow_bytes": 10_000_000, "scheme": scheme}
    return {**EIGHT, **where, "oversubscription": oversubscription}


def times(where: Where, over: Mapping[str, Scalar], column: str = "p999_ms", **more: Any) -> Query:
    """Return a ratio of the 99.9th percentiles of the flows' times, or of another column."""
    return Query("lbsp_tcp", where, column, over, **{"seeds": 3, **more})


def queues(column: str, by: str, load: float, over: Mapping[str, Scalar] | None = None) -> Query:
    """Return a mean queue of section 5.2 in the slotted model, with states."""
    where: Where = {"load_fraction": load, "states": 1, "arrivals": "paced"}
    by = by and f"{by}_packets"
    return Query("lbsp_queues", where, f"{column}_packets", over or {}, by=by)


def share(where: Where, column: str) -> Query:
    """Return a share of the packets."""
    return Query("lbsp_tcp", where, column, form=Form.PERCENT, seeds=3)


OVER_SCATTER = (
    Claim(
        "time under packet scatter over that under LBSP, 8:1, one failed link, k = 8",
        OVERSUBSCRIBED,
        "LBSP is faster",
        times(pod(8), LBSP, column="mean_ms"),
        ours=OUR_POD,
        apart=NO_NETWORK,
    ),
    Claim(
        "time under packet scatter over that under LBSP, 4:1, one failed link, k = 8",
        OVERSUBSCRIBED,
        "LBSP is faster",
        times(pod(4), LBSP, column="mean_ms"),
        ours=OUR_POD,
        apart=NO_NETWORK,
    ),
    Claim(
        "scatter's time over LBSP's, 8:1 against 1:1, one failed link, k = 8",
        OVERSUBSCRIBED,
        "LBSP gains more",
        times(pod(8), LBSP, against=BALANCED, column="mean_ms"),
        ours=OUR_POD,
        apart=NO_NETWORK,
    ),
)
FIGURE_6 = (
    Claim(
        "short flows, packet scatter over LBSP, healthy links, k = 8",
        HEALTHY_SHORT,
        "marginally better",
        times(short("none"), LBSP, seeds=10),
        ours=OUR_SHORT,
        apart="The difference is marginal, and the percentile of a run a thousand times as short "
        "does not decide it.",
    ),
    *(
        Claim(
            f"short flows with {words} over healthy, k = 8: {name}",
            FAILED_SHORT,
            "not significantly affected",
            times(short(damage, scheme), HEALTHY),
            ours=OUR_SHORT,
            apart="The run is a thousand times as short, and the load exceeds the uplinks that are "
            "left, so the percentile depends on its length.",
        )
        for words, damage in (("a failed link", "link"), ("a failed switch", "node"))
        for name, scheme in (("LBSP", "lbsp"), ("packet scatter", "spray"))
    ),
    *(
        Claim(
            f"packets of short flows that are overtaken, healthy links, k = 8: {name}",
            NO_BUILD_UP,
            "none",
            share(short("none", scheme), "late_fraction"),
            at_most(1),
            OUR_SHORT + "; 'not enough' as 1 %",
            why_more="Flows of other hosts meet on some paths and not on others, so packets of one "
            "flow wait for different times.",
        )
        for name, scheme in (("LBSP", "lbsp"), ("packet scatter", "spray"))
    ),
    Claim(
        "long flows, packet scatter over LBSP, healthy links, k = 8",
        HEALTHY_LONG,
        "almost equal",
        times(long("none"), LBSP),
        between(0.95, 1.05),
        OUR_TAIL,
    ),
    Claim(
        "long flows, packet scatter over LBSP, one failed link, k = 8",
        FAILED_LONG,
        "LBSP is faster",
        times(long("link"), LBSP),
        at_least(1.01),
        OUR_TAIL + ONE_PERCENT,
        why_less=IN_ORDER,
    ),
    Claim(
        "time of the flow from S3, packet scatter, one failed link over healthy, k = 8",
        GREATEST,
        "longer",
        times(long("link"), HEALTHY, column="times_ms", bins=(3, 3, 1)),
        at_least(1.01),
        OUR_LONG + ONE_PERCENT,
        why_less="Packet scatter sends nothing again here, and S3 has a link of its own.",
    ),
    Claim(
        "packets of long flows that are overtaken, LBSP, one failed link, k = 8",
        SELDOM,
        "seldom",
        share(long("link", "lbsp"), "late_fraction"),
        at_most(0.1),
        OUR_LONG + "; 'seldom' as one in a thousand",
    ),
    Claim(
        "long flows, scatter over LBSP, a failed switch against a failed link, k = 8",
        WIDER_GAP,
        "the gap is greater",
        times(long("node"), LBSP, against={"damage": "link"}),
        at_least(1.01),
        OUR_TAIL + ONE_PERCENT,
        why_less=IN_ORDER,
    ),
)
FIGURE_7 = (
    *(
        Claim(
            f"flows to a pod under packet scatter, {ratio}:1, one failed link over none, k = 8",
            SLIGHTLY if ratio < 8 else DRASTICALLY,
            "not significantly affected" if ratio < 8 else "drastically longer",
            times(pod(ratio), HEALTHY),
            ours=FIVE,
            apart=EIGHT_ONLY,
        )
        for ratio in (1, 4, 8)
    ),
    Claim(
        "flows to a pod under LBSP, 8:1, one failed link over none, k = 8",
        DRASTICALLY,
        "not affected",
        times(pod(8, "lbsp"), HEALTHY),
        ours=FIVE,
        apart=EIGHT_ONLY,
    ),
    Claim(
        "flows to a pod under packet scatter, 1:1, a failed switch over none",
        SLIGHTLY,
        "not significantly affected",
        missing="These flows were run with a failed link, and not with a failed switch.",
    ),
    Claim(
        "packets dropped under packet scatter, 8:1, one failed link",
        NO_DROPS_POD,
        "none",
        missing=DROPS_UNREAD,
    ),
    Claim(
        "packets dropped under packet scatter, degraded link",
        NO_DROPS_DEGRADED,
        "none",
        missing=DROPS_UNREAD,
    ),
    Claim(
        "short flows, degraded link over healthy, packet scatter against LBSP, k = 8",
        LESS_AFFECTED,
        "LBSP is less affected",
        times(short("degraded"), HEALTHY, against=LBSP, seeds=10),
        above(1),
        OUR_SHORT,
    ),
    Claim(
        "short flows under packet scatter, degraded link over failed link, k = 8",
        WORSE_THAN_FAILED,
        "larger effect",
        times(short("degraded"), {"damage": "link"}, seeds=10),
        above(1),
        OUR_SHORT,
    ),
    Claim(
        "long flows under packet scatter, degraded link over healthy, k = 8",
        ELEVEN,
        "over 11",
        times(long("degraded"), HEALTHY),
        ours=OUR_TAIL,
        apart="Linux undoes a cut of the window if timestamps show that the packet was only late; "
        "ns-2's Reno does not.",
    ),
    Claim(
        "long flows under packet scatter, degraded link over healthy, 16-ary fat-tree",
        ELEVEN,
        "over 11",
        missing="A fat-tree with sixteen ports has too many nodes for one machine.",
    ),
    Claim(
        "long flows under LBSP, degraded link over healthy, k = 8",
        AVOIDED,
        "no huge degradation",
        times(long("degraded", "lbsp"), HEALTHY),
        at_most(1.1),
        OUR_TAIL + "; 'no huge' as a tenth",
    ),
)
PACED = "packets of a burst arrive one after the other"
AT_ONCE = " (at once, both hops are alike)"
READINGS = {
    "four packets on each input port at load 0.9": 0.9,
    "one host of each pod at load 0.9": 0.225,
}
TWO_LOADS = (
    "The text has two loads, one four times the other, and under neither do all three statements "
    "hold: each holds under one of them."
)
FIGURE_9 = tuple(
    Claim(
        f"{words}: {reading}",
        statement,
        paper,
        queues(column, by, load),
        ours=PACED + (AT_ONCE if statement is SECOND_HOP and load == 0.9 else ""),
        apart=TWO_LOADS,
    )
    for reading, load in READINGS.items()
    for words, statement, paper, column, by in (
        (
            "mean queue of the second hop over the first",
            SECOND_HOP,
            "longer",
            "aggregation_queue",
            "edge_queue",
        ),
        ("mean queue of the third hop", THIRD_HOP, "below 1", "core_queue", ""),
        (
            "queues of the link groups apart, second hop over first",
            APART,
            "larger",
            "aggregation_apart",
            "edge_apart",
        ),
    )
)
STATES = (
    *(
        Claim(
            f"mean queue of the {hop} hop, with states over without: four packets on each input "
            "port at load 0.9",
            NOT_EXCESSIVE,
            "prevented",
            queues(column, "", 0.9, {"states": 0}),
            ours=PACED,
            apart="The text has two loads, one four times the other, and only under the higher one "
            "do queues grow without states.",
        )
        for hop, column in (("first", "edge_queue"), ("second", "aggregation_queue"))
    ),
    Claim(
        "mean queue of the third hop, load 0.6 over 0.3: four packets on each input port",
        THIRD_HOP,
        "linear",
        queues("core_queue", "", 0.6, {"load_fraction": 0.3}),
        ours=PACED,
        apart=TWO_LOADS,
    ),
)
TESTED = (
    Claim(
        "hops of a failure message",
        THREE_HOPS,
        "at most 3",
        missing="Failure messages are tested (tests/daemons/lbsp), and no experiment counts hops.",
    ),
    Claim(
        "pairs that a failed link reroutes, k = 8",
        REROUTED,
        "about 6 %",
        missing="A test counts them at this size (tests/daemons/lbsp). As many pairs have an end "
        "at the four hosts; half of them change their group, the others are in the other one.",
    ),
)
SWEEPS = (
    Sweep(
        "lbsp_tcp",
        {
            **pod(1),
            "damage": ("none", "link"),
            "scheme": ("lbsp", "spray"),
            "oversubscription": (1, 4, 8),
        },
        3,
    ),
)
CLAIMS = (*OVER_SCATTER, *FIGURE_6, *FIGURE_7, *FIGURE_9, *STATES, *TESTED)
