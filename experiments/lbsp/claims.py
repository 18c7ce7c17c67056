"""Claims of LBSP, in the order of its figures; what is missing here comes last."""

from __future__ import annotations

from weft.experiments.report.claims import AtLeast, AtMost, Between, Claim, Form, Query, Where

EXACT: Where = {"clock": "virtual"}
LBSP = {"scheme": "lbsp"}
HEALTHY = {"damage": "none"}
NETWORKS = {4: "fattree:k=4", 8: "fattree:k=8"}


def short(k: int, damage: str, scheme: str = "spray", tcp: str = "rack") -> Where:
    """Return the cell of short flows."""
    where = {"workload": "short", "topology": NETWORKS[k], "damage": damage, "tcp": tcp}
    return {**EXACT, **where, "scheme": scheme}


def long(k: int, damage: str, scheme: str = "spray") -> Where:
    """Return the cell of long flows."""
    where = {"workload": "long", "topology": NETWORKS[k], "damage": damage}
    return {**EXACT, **where, "scheme": scheme, "flow_bytes": 10_000_000}


def pod(oversubscription: int) -> Where:
    """Return the cell of flows to a pod."""
    where = {"workload": "pod", "topology": NETWORKS[8], "damage": "link", "scheme": "spray"}
    return {**EXACT, **where, "oversubscription": oversubscription, "flow_bytes": 3_000_000}


SMALL = "The paper assumes at least eight ports; with four a path group is a single path."
HANDSHAKE = (
    "The slowest flows waited for Linux' timer of handshakes, about a second, which the paper's "
    "simulator lacks; and the paper assumes at least eight ports."
)
SHRINKS = (
    "Without a failure the gap is larger here, and the paper has none; it assumes at least eight "
    "ports."
)
CLAIMS = (
    *(
        Claim(
            f"99.9th percentile of short flows, scatter over LBSP, healthy links, k = {k}",
            "section 4, figure 6a",
            "marginally below 1",
            Query("lbsp_tcp", short(k, "none"), "p999_ms", LBSP),
            AtMost(1),
            review=SMALL if k == 4 else "",
        )
        for k in (4, 8)
    ),
    *(
        Claim(
            f"99.9th percentile of short flows with {words} over healthy, k = {k}: {name}",
            "section 4, figure 6a",
            "about 1",
            Query("lbsp_tcp", short(k, damage, scheme), "p999_ms", HEALTHY),
            Between(0.9, 1.1),
            review=HANDSHAKE if k == 4 else "",
        )
        for words, damage in (("a failed link", "link"), ("a failed switch", "node"))
        for k in (4, 8)
        for name, scheme in (("LBSP", "lbsp"), ("packet scatter", "spray"))
    ),
    *(
        Claim(
            f"extra time of long flows under packet scatter, {words}, k = {k}",
            "section 4, figure 6b",
            paper,
            Query("lbsp_tcp", long(k, damage), column, LBSP, Form.GAIN),
            rule,
            why,
            review=SHRINKS if k == 4 else "",
        )
        for words, damage, k, column, paper, rule, why in (
            ("healthy links", "none", 8, "p999_ms", "0 %", Between(-1, 1), ""),
            (
                "one failed link",
                "link",
                8,
                "mean_ms",
                "above 0 %",
                AtLeast(0),
                "At k = 8 the hosts' own links hold the flows, so the failed link hardly matters.",
            ),
            ("one failed link", "link", 4, "mean_ms", "above 0 %", AtLeast(0), ""),
        )
    ),
    *(
        Claim(
            f"99.9th percentile under packet scatter, {ratio}:1, one failed link over none, k = 8",
            "section 4, figure 7a",
            "about 1",
            Query("lbsp_tcp", pod(ratio), "p999_ms", HEALTHY),
            Between(0.9, 1.1),
        )
        for ratio in (1, 4)
    ),
    Claim(
        "time under packet scatter over that under LBSP, 8:1, one failed link, k = 8",
        "section 4, figure 7a",
        "far above 1",
        Query("lbsp_tcp", pod(8), "mean_ms", LBSP),
        AtLeast(2),
        "A path group has 4 of the core's 16 paths for all flows that share it.",
    ),
    *(
        Claim(
            f"99.9th percentile of short flows, a degraded link over healthy, k = 8: {name}",
            "section 4, figure 7b",
            "",
            Query("lbsp_tcp", short(8, "degraded", scheme), "p999_ms", HEALTHY),
            why="The paper's values are in a plot alone; LBSP is less affected than scatter.",
        )
        for name, scheme in (("LBSP", "lbsp"), ("packet scatter", "spray"))
    ),
    *(
        Claim(
            f"99.9th percentile with a degraded link over healthy, k = {k}: {name}",
            "section 4, figure 7c",
            paper,
            Query("lbsp_tcp", long(k, "degraded", scheme), "p999_ms", HEALTHY),
            rule,
            why if k == 8 else "",
            review=SMALL if k == 4 else "",
        )
        for k in (8, 4)
        for name, scheme, paper, rule, why in (
            ("packet scatter", "spray", "above 11", AtLeast(11), "The order is the paper's."),
            ("LBSP", "lbsp", "about 1", Between(0.8, 1.2), ""),
        )
    ),
    *(
        Claim(
            f"mean queue of the {words} hop with states, load 0.9",
            "section 5.2, figure 9a",
            paper,
            Query(
                "lbsp_queues",
                {"load_fraction": 0.9, "states": 1, "arrivals": "paced"},
                f"{hop}_queue_packets",
            ),
            rule,
            why,
        )
        for words, hop, paper, rule, why in (
            ("first", "edge", "short", AtMost(10), ""),
            ("second", "aggregation", "longer than the first", AtLeast(2), ""),
            (
                "third",
                "core",
                "below 1",
                AtMost(1),
                "States balance uplinks but load downlinks unevenly; lower switches cannot see it.",
            ),
        )
    ),
    *(
        Claim(
            f"queues of the link groups apart at the {words} hop with states, load 0.9",
            "section 5.2, figure 9b",
            "",
            Query(
                "lbsp_queues",
                {"load_fraction": 0.9, "states": 1, "arrivals": "paced"},
                f"{hop}_apart_packets",
            ),
            why="The paper's values are in a plot alone; it has more at the second hop.",
        )
        for words, hop in (("first", "edge"), ("second", "aggregation"))
    ),
    Claim(
        "long flows, k = 16: oversubscribed 8:1, and with a degraded link",
        "section 4, figures 7a and 7c",
        "over 11 times longer under packet scatter",
        why="A fat-tree with k = 16 is too large for one machine.",
    ),
)
