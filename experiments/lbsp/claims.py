"""Claims of LBSP, in the order of its sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.experiments.report.claims import (
    Claim,
    Form,
    Query,
    Statement,
    Sweep,
    Where,
    above,
    at_least,
    at_most,
    between,
)

PACKETS = {"tcp": "reno", "engine": "packet"}
LINUX = {"topology": "fattree:k=8", "tcp": "reno", "clock": "virtual"}
LBSP = {"scheme": "lbsp"}
HEALTHY = {"damage": "none"}
TAIL = ", 99.9th percentile"
SHORT = "8-ary fat-tree, 32 KB flows, load 0.8 for 3.3 s, TCP Reno"
OUR_SHORT = "3,000 permutations, 1 s of traffic; a first window of ten packets"
LONG = "8-ary fat-tree, four flows of 100 MB again and again for 20 s, TCP Reno"
DEGRADED = "8-ary and 16-ary fat-trees, a degraded link, flows of 100 MB, TCP Reno"
OUR_LONG = "the four flows once in each of ten seeds"
OUR_TAIL = OUR_LONG + "; percentile of four flows"
ONE_PERCENT = "; an order counts from 1 % on"
POD = "16-ary fat-tree, five flows to one pod, one failed link, TCP Reno"
OUR_POD = (
    "five flows of 100 MB, four from behind the damaged link, between hosts drawn twenty times; "
    "99.9th percentile of five, near the slowest"
)
OF_FIGURE_7A = "; the network of figure 7a"
AFTER_A_THIRD = "; {0} after a third of the time"
OF_WHAT = "of what its load is 0.8"
LIGHT: Where = {"rounds": 300, "load_fraction": 0.2}
BOTH_LOADS = "0.8 of a host's link, then 0.2 with 300 permutations"
OVERLOADED = (
    f"The paper does not say {OF_WHAT}. At 0.8 of a host's link uplinks carry less "
    "than four hosts send: times grow with the run, "
)
FURTHER = OVERLOADED + "further from the paper."
RATIO_FALLS = OVERLOADED + "and their ratio falls."
SAME_PATH = (
    "The two flows of one host share its link, which bounds the slowest, with healthy links, too. "
    "In our reading of figure 3, an image, both failures take the same path from the flows."
)
IN_ORDER = (
    "Packet scatter sends nothing again here, and the two flows of one host share its link, which "
    "bounds the slowest."
)
FAILED_SHORT = Statement(
    "section 4, figure 6a",
    "Neither a link failure nor a node failure affects the flow completion time of TCP flows "
    "significantly.",
    "law",
    SHORT + TAIL,
)
HEALTHY_SHORT = Statement(
    "section 4, figure 6a",
    "the original packet scatter scheme, which distributes packets using more paths, performs "
    "marginally better than LBSP",
    "order",
    SHORT + TAIL,
)
NO_BUILD_UP = Statement(
    "section 4, figure 6a",
    "Since the flows are short, the queues do not build up enough to cause packet reordering or "
    "packet drops.",
    "law",
    SHORT,
)
GREATEST = Statement(
    "section 4, figure 6b",
    "For the original packet scatter scheme, the flow from S3 suffers the greatest degradation of "
    "performance.",
    "order",
    LONG,
)
SELDOM = Statement(
    "section 4, figure 6b",
    "In LBSP, however, the flows seldom experience packet reordering.",
    "law",
    LONG,
)
HEALTHY_LONG = Statement(
    "section 4, figure 6b",
    "When there is no failure in the network, both schemes perform almost equal.",
    "law",
    LONG + TAIL,
)
FAILED_LONG = Statement(
    "section 4, figure 6b",
    "When a failure occurs at a link between a ToR switch and an aggregation switch, … LBSP "
    "performs better than the original packet scatter scheme despite the disadvantageous scenario.",
    "order",
    LONG + TAIL,
)
WIDER_GAP = Statement(
    "section 4, figure 6b",
    "When an aggregation switch in the source pod of the three flows fails, the gap between two "
    "schemes becomes greater",
    "order",
    LONG + TAIL,
)
OVERSUBSCRIBED = Statement(
    "section 3.4",
    "Effectiveness of LBSP becomes more evident in fat-trees with high oversubscription ratios, "
    "where queues build up more. If a failure occurs in such a network, network asymmetry and "
    "queue buildup may jointly cause severe packet reordering.",
    "law",
    "no network and no number",
)
SLIGHTLY = Statement(
    "section 4, figure 7a",
    "For oversubscription ratio of 1:1, a link failure or a node failure does not significantly "
    "affect TCP flow completion time of the original scatter scheme. This was also the case … 4:1",
    "law",
    POD,
)
DRASTICALLY = Statement(
    "section 4, figure 7a",
    "when the oversubscription ratio was set to 8:1, the flow completion time of the original "
    "packet scatter scheme drastically increases, even when only one link is disconnected. … In "
    "contrast, the flow completion time of LBSP is not affected.",
    "law",
    POD,
)
NO_DROPS_POD = Statement(
    "section 4, figure 7a",
    "In this case, there was no packet drop.",
    "law",
    POD + ", 8:1",
)
NO_DROPS_DEGRADED = Statement(
    "section 4, figure 7c",
    "Since there is no packet drop, the performance degradation is only due to out-of-order "
    "packets.",
    "law",
    DEGRADED,
)
LESS_AFFECTED = Statement(
    "section 4, figure 7b",
    "performance of LBSP is less affected by a degraded link compared to that of the original "
    "packet scatter scheme",
    "order",
    SHORT + TAIL,
)
WORSE_THAN_FAILED = Statement(
    "section 4, figure 7b",
    "the effect of a degraded link on flow completion time is larger than that of a disconnected "
    "link",
    "order",
    SHORT + TAIL,
)
ELEVEN = Statement(
    "section 4, figure 7c",
    "For both 8-ary and 16-ary fat-trees, the original packet scatter scheme experiences over "
    "eleven times longer flow completion time than in a normal condition.",
    "number",
    DEGRADED + TAIL,
)
AVOIDED = Statement(
    "section 4, figure 7c",
    "LBSP can avoid such huge degradation of performance by selecting an alternative path group",
    "law",
    DEGRADED + TAIL,
)
SLOTS = "8-ary fat-tree, 100 permutations of 1,000 slots"
SECOND_HOP = Statement(
    "section 5.2, figure 9a",
    "the queue lengths at the second hop (aggregation switches) are longer than those at the first "
    "hop (ToR switches)",
    "order",
    SLOTS,
)
THIRD_HOP = Statement(
    "section 5.2, figure 9a",
    "At the third hop …, the average queue length increases linearly with respect to the offered "
    "load ρ, and remains below 1.",
    "law",
    SLOTS,
)
NOT_EXCESSIVE = Statement(
    "section 5.2, figure 9a",
    "traffic distribution mechanism prevents the queue lengths from growing excessively",
    "law",
    SLOTS,
)
APART = Statement(
    "section 5.2, figure 9b",
    "the queue length differences at the second hop are larger than those at the first hop",
    "order",
    SLOTS,
)
THREE_HOPS = Statement(
    "section 3.3.1",
    "the failure messages take at most three hops to reach all the aggregation switches and ToR "
    "switches that need the failure information",
    "law",
    "three-tier fat-trees",
)
REROUTED = Statement(
    "section 3.4",
    "the proportion of the source-destination pairs to be rerouted is approximately 6%",
    "number",
    "8-ary fat-tree, a failed link between a ToR and an aggregation switch",
)


def cell(k: int, workload: str, damage: str, scheme: str, **more: Any) -> Where:
    """Return a cell of simulated packets on a k-ary fat-tree."""
    where = {"topology": f"fattree:k={k}", "workload": workload, "damage": damage}
    return {**PACKETS, **where, "scheme": scheme, **more}


def short(damage: str, scheme: str = "spray", **more: Any) -> Where:
    """Return the cell of short flows."""
    return cell(8, "short", damage, scheme, **{"rounds": 3000, **more})


def long(damage: str, scheme: str = "spray", k: int = 8) -> Where:
    """Return the cell of long flows, at the paper's size."""
    return cell(k, "long", damage, scheme, flow_bytes=100_000_000)


def pod(oversubscription: int, scheme: str = "spray", damage: str = "link") -> Where:
    """Return the cell of flows to a pod, at the paper's size."""
    of_link = {"flow_bytes": 100_000_000, "oversubscription": oversubscription}
    return cell(16, "drawn", damage, scheme, **of_link)


SEEDS: Mapping[str, int] = {"short": 3, "long": 10, "drawn": 20}


def times(where: Where, over: Where, column: str = "p999_ms", **more: Any) -> Query:
    """Return a ratio of the 99.9th percentiles of the flows' times, or of another column."""
    return Query(
        "lbsp_tcp", where, column, over, **{"seeds": SEEDS[str(where["workload"])], **more}
    )


def queues(column: str, by: str, load: float, over: Where | None = None) -> Query:
    """Return a mean queue of section 5.2 in the slotted model, with states."""
    where = {"load_fraction": load, "states": 1, "arrivals": "paced"}
    by = by and f"{by}_packets"
    return Query("lbsp_queues", where, f"{column}_packets", over or {}, by=by)


def share(where: Where, column: str) -> Query:
    """Return a share of the packets."""
    return Query("lbsp_tcp", where, column, form=Form.PERCENT, seeds=SEEDS[str(where["workload"])])


def drops(where: Where) -> Query:
    """Return the packets that queues of switches had no room for."""
    return Query(
        "lbsp_tcp", where, "dropped_packets", statistic=max, seeds=SEEDS[str(where["workload"])]
    )


OVER_SCATTER = (
    *(
        Claim(
            f"time under packet scatter over that under LBSP, {ratio}:1, one failed link, k = 16",
            OVERSUBSCRIBED,
            "LBSP is faster",
            times(pod(ratio), LBSP),
            above(1),
            OUR_POD + OF_FIGURE_7A,
        )
        for ratio in (8, 4)
    ),
    *(
        Claim(
            f"scatter's time over LBSP's, {more}:1 against {less}:1, one failed link, k = 16",
            OVERSUBSCRIBED,
            "LBSP gains more",
            times(pod(more), LBSP, against={"oversubscription": less}),
            above(1),
            OUR_POD + OF_FIGURE_7A,
            why_less="LBSP's four flows have half of their edge switch's uplinks, and at 8:1 the "
            "link groups behind these have half of an uplink's rate.",
        )
        for more, less in ((4, 1), (8, 4), (8, 1))
    ),
)
FIGURE_6 = (
    Claim(
        "short flows, packet scatter over LBSP, healthy links, k = 8",
        HEALTHY_SHORT,
        "marginally better",
        times(short("none"), LBSP),
        between(0.8, 1),
        f"{OUR_SHORT}; 'marginally' as at most a fifth; {BOTH_LOADS}; with a failed link 0.47",
        otherwise=times(short("none", **LIGHT), LBSP),
        unnamed=OF_WHAT,
    ),
    *(
        Claim(
            f"short flows with {words} over healthy, k = 8: {name}",
            FAILED_SHORT,
            "not significantly affected",
            times(short(damage, scheme), HEALTHY),
            ours=OUR_SHORT + AFTER_A_THIRD.format(shorter),
            apart=FURTHER,
        )
        for words, damage, name, scheme, shorter in (
            ("a failed link", "link", "LBSP", "lbsp", 57),
            ("a failed link", "link", "packet scatter", "spray", 25),
            ("a failed switch", "node", "LBSP", "lbsp", 64),
            ("a failed switch", "node", "packet scatter", "spray", 32),
        )
    ),
    *(
        Claim(
            f"packets of short flows that are overtaken, healthy links, k = 8: {name}",
            NO_BUILD_UP,
            "none",
            share(short("none", scheme), "late_fraction"),
            at_most(1),
            f"{OUR_SHORT}; 'not enough' as 1 %; {BOTH_LOADS}",
            otherwise=share(short("none", scheme, **LIGHT), "late_fraction"),
            unnamed=OF_WHAT,
            why_more="Flows meet on some paths and not on others. Long flows, which do not meet, "
            "are hardly ever overtaken on healthy links.",
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
        ours=OUR_TAIL,
        apart=SAME_PATH,
    ),
)
WORDS = {"link": "one failed link", "node": "a failed switch"}
FIGURE_7 = (
    *(
        Claim(
            f"flows to a pod under packet scatter, {ratio}:1, {WORDS[damage]} over none, k = 16",
            SLIGHTLY,
            "not significantly affected",
            times(pod(ratio, damage=damage), HEALTHY),
            at_most(1.1),
            OUR_POD + "; 'not significantly' as a tenth",
        )
        for damage, ratio in (("link", 1), ("node", 1), ("link", 4), ("node", 4))
    ),
    Claim(
        "flows to a pod under packet scatter, 8:1, one failed link over none, k = 16",
        DRASTICALLY,
        "drastically longer",
        times(pod(8), HEALTHY),
        at_least(1.5),
        OUR_POD + "; 'drastically' as a half",
        why_less="Packets overtake each other on the slow core links when no link has failed, too, "
        "and Reno sends as many again in vain.",
    ),
    Claim(
        "flows to a pod under LBSP, 8:1, one failed link over none, k = 16",
        DRASTICALLY,
        "not affected",
        times(pod(8, "lbsp"), HEALTHY),
        at_most(1.1),
        OUR_POD + "; 'not affected' as a tenth",
        why_more="The four flows have four uplinks in place of eight, and at 8:1 a link group "
        "behind each has half of an uplink's rate. Flows that meet no other take about twice as "
        "long.",
    ),
    Claim(
        "packets dropped under packet scatter, 8:1, one failed link, k = 16",
        NO_DROPS_POD,
        "none",
        drops(pod(8)),
        at_most(0),
        "five flows of 100 MB, maximum of twenty runs; a host keeps what its own port refuses",
    ),
    *(
        Claim(
            f"packets dropped under packet scatter, degraded link, k = {k}",
            NO_DROPS_DEGRADED,
            "none",
            drops(long("degraded", k=k)),
            at_most(0),
            "four flows, maximum of ten runs; a host keeps what its own port refuses",
        )
        for k in (8, 16)
    ),
    Claim(
        "short flows, degraded link over healthy, packet scatter against LBSP, k = 8",
        LESS_AFFECTED,
        "LBSP is less affected",
        times(short("degraded"), HEALTHY, against=LBSP),
        ours=OUR_SHORT + AFTER_A_THIRD.format(1.6),
        apart=RATIO_FALLS,
    ),
    Claim(
        "short flows under packet scatter, degraded link over failed link, k = 8",
        WORSE_THAN_FAILED,
        "larger effect",
        times(short("degraded"), {"damage": "link"}),
        ours=OUR_SHORT + AFTER_A_THIRD.format(3.8),
        apart=RATIO_FALLS,
    ),
    *(
        Claim(
            f"long flows under packet scatter, degraded link over healthy, k = {k}",
            ELEVEN,
            "over 11",
            times(long("degraded", k=k), HEALTHY),
            at_least(11),
            f"{OUR_TAIL}; the flow from S2, which has its host's link alone, takes {alone} times "
            "as long",
            why_less="The slowest flow shares its host's link when all links are healthy, too. The "
            "paper prints neither the size of packets nor limits of the window.",
        )
        for k, alone in ((8, "9.5"), (16, "8.0"))
    ),
    *(
        Claim(
            f"long flows under LBSP, degraded link over healthy, k = {k}",
            AVOIDED,
            "no huge degradation",
            times(long("degraded", "lbsp", k), HEALTHY),
            at_most(1.1),
            OUR_TAIL + "; 'no huge' as a tenth",
        )
        for k in (8, 16)
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
DAMAGES = ("none", "link", "node", "degraded")
BOTH = {"scheme": ("lbsp", "spray")}
ON_LINUX = {**BOTH, "workload": "pod", "flow_bytes": 10_000_000}
SWEEPS = (
    *(
        Sweep(
            "lbsp_tcp",
            {**where, **ON_LINUX, "damage": ("none", "link"), "oversubscription": (1, 4, 8)},
            3,
        )
        for where in (LINUX, {**PACKETS, "topology": "fattree:k=8"})
    ),
    Sweep(
        "lbsp_tcp",
        {**LINUX, **BOTH, "workload": "long", "flow_bytes": 10**8, "damage": ("none", "degraded")},
        3,
    ),
    Sweep("lbsp_tcp", {**short("none", rounds=1000), **BOTH, "damage": DAMAGES}, 3),
    Sweep("lbsp_tcp", {**pod(1), **BOTH, "oversubscription": (1, 4, 8)}, 20),
    Sweep("lbsp_tcp", {**pod(1), **BOTH, "damage": "none", "oversubscription": (1, 4, 8)}, 20),
)
CLAIMS = (*OVER_SCATTER, *FIGURE_6, *FIGURE_7, *FIGURE_9, *STATES, *TESTED)
