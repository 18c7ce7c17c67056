"""Claims of DAR, in the order of its evaluation."""

from __future__ import annotations

from weft.experiments.dar.dar_table import PAPER, PAPER_COLUMNS
from weft.experiments.dar.settings import PRESETS
from weft.experiments.report.claims import AtLeast, AtMost, Claim, Form, Query, RowStatistic, Within

RNB = "clos:n=24,r=48,m=24"
SETTLING = {"topology": RNB, "scheme": "dar"}
STATISTICS = {
    "throughput_gbps": "throughput",
    "latency_us": "latency",
    "jump_ratio": "packets out of order for one in order",
    "jump_packets": "window of reordering, packets",
}
EXTREMES = {"mean": "mean", "min": "least receiver", "max": "most"}
OPEN = "The text leaves parts of the switch model open, and hosts drift apart at the full rate."
TABLE_1 = tuple(
    Claim(
        f"{STATISTICS[statistic]}, {EXTREMES[extreme]}, {topology} at {host_gbps} Gbit/s, {preset}",
        "section 5.2, table 1",
        paper,
        Query(
            "dar_table",
            {"topology": topology, "host_gbps": host_gbps, "scheme": "dar", "preset": preset},
            column,
        ),
        Within(0.1),
        OPEN,
    )
    for preset in PRESETS
    for (topology, host_gbps), values in PAPER.items()
    for column, paper in zip(PAPER_COLUMNS, values, strict=True)
    for extreme, _, statistic in [column.partition("_")]
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
