"""Claims of DAR, in the order of its evaluation."""

from __future__ import annotations

from weft.experiments.report.claims import AtLeast, AtMost, Claim, Form, Query, RowStatistic, Within

RNB = "clos:n=24,r=48,m=24"
SETTLING = {"topology": RNB, "scheme": "dar"}
TABLE_1 = tuple(
    Claim(
        f"{words}, CLOS(24,48,{spines}) at {host_gbps} Gbit/s",
        "section 5.2, table 1",
        paper,
        Query(
            "dar_table",
            {"topology": f"clos:n=24,r=48,m={spines}", "host_gbps": host_gbps, "scheme": "dar"},
            column,
        ),
        Within(0.1),
        why,
    )
    for spines, host_gbps, values in (
        (48, 40.0, (37.7, 17.0, 1.87)),
        (24, 40.0, (23.0, 32.0, 5.2)),
        (24, 19.2, (18.9, 5.8, 0.0023)),
    )
    for words, column, paper, why in zip(
        ("throughput", "latency", "packets out of order for one in order"),
        ("mean_throughput_gbps", "mean_latency_us", "mean_held_ratio"),
        values,
        (
            "The text leaves parts of the switch model open.",
            "The text leaves parts of the switch model open.",
            "The paper does not say how it counts packets out of order.",
        ),
        strict=True,
    )
)
CLAIMS = (
    Claim(
        "iterations until no link is bad, flows at half rate, CLOS(24,24,24)",
        "section 5.1, figure 12",
        "few",
        Query(
            "dar_convergence",
            {"topology": "clos:n=24,r=24,m=24", "p": 2, "rule": "paper"},
            "mean_iterations",
        ),
        AtMost(20),
    ),
    Claim(
        "... flows at full rate, CLOS(6,6,6)",
        "section 5.1, figure 10a",
        "many",
        Query(
            "dar_convergence",
            {"topology": "clos:n=6,r=6,m=6", "p": 1, "rule": "paper"},
            "mean_iterations",
        ),
        AtLeast(1000),
    ),
    Claim(
        "permutations settled within 80 µs, 1,152 hosts, 0.48 of the rate, queue 3, rest 16",
        "section 5.2, figure 13c",
        100,
        Query(
            "dar_settling",
            {**SETTLING, "host_gbps": 19.2},
            "within_80_us_fraction",
            form=Form.PERCENT,
            statistic=RowStatistic.LEAST,
        ),
        Within(0),
        in_readme=True,
    ),
    Claim(
        "... the last of them after",
        "section 5.2, figure 13c",
        "at most 80 µs",
        Query(
            "dar_settling",
            {**SETTLING, "host_gbps": 19.2},
            "max_settling_us",
            statistic=RowStatistic.MOST,
        ),
        AtMost(80),
    ),
    Claim(
        "permutations in which flows still move at the end, 0.52 of the rate",
        "section 5.2, figure 13b",
        100,
        Query(
            "dar_settling",
            {**SETTLING, "host_gbps": 20.8},
            "moving_in_last_quarter_fraction",
            form=Form.PERCENT,
            statistic=RowStatistic.LEAST,
        ),
        Within(0),
        in_readme=True,
    ),
    Claim(
        "... and TCP on Linux, CLOS(8,8,8), packet times scaled: settled",
        "not in the paper",
        "",
        Query(
            "dar_settling",
            {"topology": "clos:n=8,r=8,m=8", "host_gbps": 19.2, "clock": "virtual"},
            "within_80_us_fraction",
            form=Form.PERCENT,
            statistic=RowStatistic.LEAST,
        ),
    ),
    *TABLE_1,
)
