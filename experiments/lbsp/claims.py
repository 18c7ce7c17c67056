"""Claims of LBSP, in the order of its figures."""

from __future__ import annotations

from weft.experiments.report.claims import AtLeast, Between, Claim, Form, Query, Where

AT_PAPERS_RATE: Where = {
    "tcp": "reno",
    "scheme": "spray",
    "rate_mbps": 1000,
    "delay_us": 50,
    "repeats": 1,
    "clock": "virtual",
}
LBSP = {"scheme": "lbsp"}


def long_flows(topology: str, damage: str, column: str) -> Query:
    """Return by how much long flows take longer under packet scatter than under LBSP."""
    where = {**AT_PAPERS_RATE, "topology": topology, "damage": damage, "flow_bytes": 10_000_000}
    return Query("lbsp_long", where, column, LBSP, Form.GAIN, seeds=10)


def degraded(topology: str, scheme: str) -> Query:
    """Return how often longer flows take when a link is degraded."""
    where = {**AT_PAPERS_RATE, "topology": topology, "damage": "degraded", "scheme": scheme}
    return Query("lbsp_degraded", where, "p999_ms", {"damage": "none"}, seeds=10)


CLAIMS = (
    *(
        Claim(
            f"extra time of long flows under packet scatter, {words}, k = {k}",
            "section 4, figure 6b",
            paper,
            long_flows(f"fattree:k={k}", damage, column),
            rule,
            why,
            in_readme=damage == "link",
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
    Claim(
        "time under packet scatter over that under LBSP, 8:1, one failed link, k = 8",
        "section 4, figure 7a",
        "far above 1",
        Query(
            "lbsp_oversubscription",
            {
                **AT_PAPERS_RATE,
                "damage": "link",
                "oversubscription": 8,
                "flow_bytes": 3_000_000,
            },
            "mean_ms",
            LBSP,
            seeds=10,
        ),
        AtLeast(2),
        "A path group has 4 of the core's 16 paths for all flows that share it.",
    ),
    *(
        Claim(
            f"99.9th percentile with a degraded link over healthy, k = {k}: {name}",
            "section 4, figure 7c",
            paper,
            degraded(f"fattree:k={k}", scheme),
            rule,
            why,
        )
        for k, name, scheme, paper, rule, why in (
            (8, "packet scatter", "spray", "above 11", AtLeast(11), "The order is the paper's."),
            (8, "LBSP", "lbsp", "about 1", Between(0.8, 1.2), ""),
            (4, "packet scatter", "spray", "above 11", AtLeast(11), "The order is the paper's."),
            (
                4,
                "LBSP",
                "lbsp",
                "about 1",
                Between(0.8, 1.2),
                "At k = 4 the group that remains has a single uplink.",
            ),
        )
    ),
)
