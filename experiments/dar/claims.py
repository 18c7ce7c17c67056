"""Claims of DAR, in the order of its evaluation; what the paper does not have comes first."""

from __future__ import annotations

from typing import Any

from weft.experiments.dar.dar_table import PAPER, PAPER_COLUMNS
from weft.experiments.dar.settings import PRESETS
from weft.experiments.report.claims import (
    AtLeast,
    AtMost,
    Claim,
    Form,
    NotComparable,
    Query,
    Rule,
    Sweep,
    Within,
)

RNB, SNB, SMALL = "clos:n=24,r=48,m=24", "clos:n=24,r=48,m=48", "clos:n=8,r=8,m=8"
SIX: dict[str, Any] = {"topology": "clos:n=6,r=6,m=6", "p": 1}
TIGHT = tuple(f"clos:n={n},r={n},m={n}" for n in (4, 5, 6, 8, 12, 16, 24, 32, 48))
OURS = "not in the paper"
LONG: dict[str, Any] = {
    "topology": RNB,
    "host_gbps": 40,
    "preset": "ours",
    "key": "flow",
    "traffic": "cross",
    "message_kb": 16_384,
    "time_us": 3200,
    "skipped_us": 1600,
}
WINDOW = "no spare link, 1,600 to 3,200 µs of a permutation"
FULL_RATE_SCHEMES = (
    "dar-persistent",
    "dar-informed",
    "central",
    "drill",
    "dar-count",
    "dar",
    "dmodk",
    "ecmp",
)
BY_SIZE: dict[str, Any] = {
    "traffic": "random",
    "scheme": ("dar-informed", "drill", "ecmp"),
    "message_kb": (256, 2048, 4096, 8192, 16_384),
    "time_us": 7000,
    "skipped_us": 200,
}
STATEMENT_SEEDS = 10
OTHER_ENGINES: dict[str, Any] = {
    "topology": SMALL,
    "key": "flow",
    "time_us": 1400,
}
FULL_RATE_ON_LINUX: dict[str, Any] = {
    "clock": "virtual",
    "host_percent": 100,
    "warm_up_s": 4,
    "seconds": 6,
}
INFORMED = "dar:p=1,elephant_kb=0,informed=1"
BY_LEAVES = tuple(f"clos:n=24,r={r},m=24" for r in (24, 48, 96, 192, 288))
MANY = tuple(f"clos:n={n},r={r},m={n}" for n, r in ((4, 8), (6, 7), (8, 16), (24, 48)))
AT_FULL_RATE = {
    "informed DAR": INFORMED,
    "the paper's DAR by counts": "dar:p=1,elephant_kb=0",
    "the paper's DAR by queues": "dar:p=1,elephant_kb=0,detect=queue",
    "DRILL": "drill",
    "TTC": "ttc",
    "ECMP": "ecmp",
}


STATISTICS = {
    "throughput_gbps": "throughput",
    "latency_us": "latency",
    "jump_ratio": "packets out of order for one in order",
    "jump_packets": "window of reordering, packets",
}
EXTREMES = {"mean": "mean", "min": "least receiver", "max": "most"}
WHY = {
    "throughput_gbps": "Hosts drift apart at the full rate.",
    "latency_us": "Our switches and cables take no time.",
    "jump_ratio": "The text leaves parts of the switch model open.",
    "jump_packets": "The window depends on threshold, and on the room behind each link.",
}
TABLE_1 = tuple(
    Claim(
        f"{STATISTICS[statistic]}, {EXTREMES[extreme]}, {topology} at {host_gbps} Gbit/s, {preset}",
        "section 5.2, table 1",
        paper,
        Query(
            "dar_table",
            {"topology": topology, "host_gbps": host_gbps, "scheme": "dar", "preset": preset},
            column,
            seeds=STATEMENT_SEEDS,
        ),
        Within(0.1),
        WHY[statistic],
    )
    for preset in PRESETS
    for (topology, host_gbps), values in PAPER.items()
    for column, paper in zip(PAPER_COLUMNS, values, strict=True)
    for extreme, _, statistic in [column.partition("_")]
)


def iterations(words: str, place: str, where: dict[str, Any], rule: Rule, **more: Any) -> Claim:
    """Return a claim about the iterations of section 2."""
    column = more.pop("column", "mean_iterations")
    texts = {key: more.pop(key, "") for key in ("paper", "why")}
    in_readme = more.pop("in_readme", False)
    query = Query("dar_convergence", {"rule": "paper", **where}, column, **more)
    return Claim(words, place, texts["paper"], query, rule, texts["why"], in_readme)


def settling(
    words: str,
    figure: str,
    where: dict[str, Any],
    *,
    column: str = "within_80_us_fraction",
    **more: Any,
) -> Claim:
    """Return a claim about the permutations of figure 13, as a percentage."""
    query = Query(
        "dar_settling",
        {"topology": RNB, "scheme": "dar", "host_gbps": 19.2, **where},
        column,
        form=Form.PERCENT,
        seeds=STATEMENT_SEEDS,
    )
    return Claim(words, f"section 5.2, figure {figure}", 100, query, Within(0), **more)


HANGS = "It depends on threshold and rest, which the paper does not give."
SENSITIVITY = tuple(
    settling(
        f"... with threshold {queue} and rest {rest}",
        "13c",
        {"queue_packets": queue, "rest_slots": rest},
        why=HANGS,
    )
    for queue, rest in ((3, 8), (3, 5), (2, 16), (2, 8), (2, 5))
)
MOVING = "moving_in_last_quarter_fraction"
IN_OTHER_ENGINES = tuple(
    claim
    for engine, where in (
        ("daemons in simulated time", {"engine": "fabric"}),
        ("TCP on Linux", {"clock": "virtual"}),
    )
    for claim in (
        settling(
            f"permutations settled within 80 µs at 0.48 of the rate, p = 2, by queues: {engine}",
            "13c",
            {**OTHER_ENGINES, **where},
        ),
        settling(
            f"permutations in which flows still move at the end, 0.52, p = 2, by queues: {engine}",
            "13b",
            {**OTHER_ENGINES, **where, "host_gbps": 20.8},
            column=MOVING,
        ),
    )
)
FULL_RATE = (
    iterations(
        "iterations in which the excess grew, informed requests, no spare link",
        OURS,
        {"rule": "informed", "topology": TIGHT},
        AtMost(0),
        column="excess_growths",
        statistic=sum,
    ),
    iterations(
        "iterations at the full rate, informed requests, CLOS(24,24,24)",
        OURS,
        {"rule": "informed", "topology": "clos:n=24,r=24,m=24", "p": 1},
        NotComparable(),
    ),
    *(
        Claim(
            f"least throughput of 1,152 hosts at 40 of 40 Gbit/s, {WINDOW}: {label}",
            OURS,
            "",
            Query(
                "dar_table",
                {**LONG, "scheme": scheme},
                "min_throughput_gbps",
                seeds=STATEMENT_SEEDS if isinstance(rule, AtLeast) else None,
            ),
            rule,
        )
        for label, scheme, rule in (
            ("persistent informed DAR", "dar-persistent", AtLeast(0.98 * 40)),
            ("the paper's DAR", "dar", NotComparable()),
            ("DRILL", "drill", NotComparable()),
            ("ECMP", "ecmp", NotComparable()),
        )
    ),
    *(
        Claim(
            f"goodput of TCP on Linux at the full rate, of the central optimum's: {label}",
            OURS,
            "",
            Query(
                "dar_goodput",
                {**FULL_RATE_ON_LINUX, "scheme": scheme},
                "goodput_fraction",
                over={"scheme": "central"},
                seeds=STATEMENT_SEEDS,
            ),
            AtLeast(0.98) if scheme == INFORMED else NotComparable(),
            in_readme=scheme == INFORMED,
        )
        for label, scheme in AT_FULL_RATE.items()
    ),
)
LEAVES: dict[str, Any] = {"topology": BY_LEAVES, "permutations": 100}
PERSISTENT_WALK = (
    iterations(
        "permutations of 10,000 that settle at the full rate, no spare link, persistent walk, "
        "least of 12",
        OURS,
        {"rule": "persistent", "p": 1, "topology": MANY, "permutations": 10_000},
        AtLeast(1),
        column="settled_fraction",
        statistic=min,
        in_readme=True,
    ),
    iterations(
        "iterations of the persistent walk, CLOS(24,288,24) over CLOS(24,24,24), twelve times the "
        "leaves",
        OURS,
        {"rule": "persistent", "p": 1, **LEAVES, "topology": BY_LEAVES[-1]},
        AtMost(1.25 * 12),
        over={"topology": BY_LEAVES[0]},
    ),
)
CLAIMS = (
    *FULL_RATE,
    iterations(
        "iterations at the full rate without a spare link, CLOS(6,6,6)",
        "section 5.1, figure 10a",
        SIX,
        AtLeast(1000),
        paper="many",
    ),
    *(
        iterations(
            f"{words} of its iterations, CLOS(6,6,6)",
            "section 5.1, figure 10a",
            SIX,
            rule,
            paper=paper,
            column=f"{model}_model_iterations",
        )
        for words, paper, model, rule in (
            ("model 3.1", "far too low", "single_output", AtMost(100)),
            ("model 3.2", "closer", "last_step", AtLeast(100)),
        )
    ),
    iterations(
        "iterations at the full rate with spare links, CLOS(12,12,24)",
        "section 5.1, figure 10b",
        {"topology": "clos:n=12,r=12,m=24", "p": 1},
        AtLeast(10),
        paper="mostly above 10",
    ),
    iterations(
        "... CLOS(9,9,18) over CLOS(8,8,16)",
        "section 5.1, figure 10b",
        {"topology": "clos:n=9,r=9,m=18", "p": 1},
        NotComparable(),
        paper="slopes of even and odd n differ",
        why="Increments from n to n + 1 are smooth: refuted.",
        over={"topology": "clos:n=8,r=8,m=16"},
    ),
    iterations(
        "iterations grow with each leaf, CLOS(6,7,6) over CLOS(6,6,6)",
        "section 5.1, figure 11",
        {"topology": "clos:n=6,r=7,m=6", "p": 1},
        AtLeast(2),
        paper="exponential",
        over={"topology": SIX["topology"]},
    ),
    iterations(
        "iterations at half rate, CLOS(24,24,24)",
        "section 5.1, figure 12",
        {"topology": "clos:n=24,r=24,m=24", "p": 2},
        AtMost(20),
        paper="very few",
    ),
    iterations(
        "worst permutations over random ones, CLOS(4,4,4), full rate",
        "section 5",
        {"topology": "clos:n=4,r=4,m=4", "p": 1},
        AtLeast(1),
        paper="harder",
        over={"traffic": "random"},
    ),
    iterations(
        "probability that a move makes a link bad, half rate, n = 4 to 48",
        "section 6",
        {"topology": TIGHT, "p": 2},
        AtMost(0.5),
        paper="below one half",
        column="new_bad_links_per_move",
        statistic=max,
    ),
    Claim(
        "moves of a flow in a message of 256 kB, CLOS(24,48,48) at the full rate",
        "section 5.2, figure 13a",
        "all the time",
        Query(
            "dar_settling",
            {"topology": SNB, "host_gbps": 40, "scheme": "dar"},
            "moves_per_flow",
        ),
        AtLeast(1),
    ),
    settling(
        "permutations in which flows still move at the end, 0.52 of the rate, p = 2",
        "13b",
        {"host_gbps": 20.8},
        column=MOVING,
        in_readme=True,
    ),
    settling(
        "permutations settled within 80 µs at 0.48 of the rate, p = 2, threshold 3, rest 16",
        "13c",
        {},
        why=HANGS,
        in_readme=True,
    ),
    *SENSITIVITY,
    *IN_OTHER_ENGINES,
    *TABLE_1,
    Claim(
        "bytes of EARs, of data, half rate",
        "section 5.2",
        "8-byte messages",
        Query(
            "dar_table",
            {"topology": RNB, "host_gbps": 19.2, "scheme": "dar", "preset": "ours"},
            "ear_bytes_fraction",
            form=Form.PERCENT,
        ),
        AtMost(0.1),
    ),
    Claim(
        "packets that go-back-N would send again at half rate, messages of 256 kB",
        "section 1.3",
        "very small",
        Query(
            "dar_table",
            {"topology": RNB, "host_gbps": 19.2, "scheme": "dar", "preset": "ours"},
            "go_back_fraction",
            form=Form.PERCENT,
            seeds=STATEMENT_SEEDS,
        ),
        AtMost(5),
    ),
    *PERSISTENT_WALK,
)
SWEEPS = (
    Sweep("dar_convergence", {"p": 1, "rule": ("informed", "persistent"), **LEAVES}),
    Sweep("dar_table", {**LONG, "scheme": FULL_RATE_SCHEMES}),
    Sweep("dar_table", {**LONG, **BY_SIZE}),
    Sweep(
        "dar_failure",
        {"clock": "virtual", "host_percent": 100, "scheme": INFORMED},
        STATEMENT_SEEDS,
    ),
)
