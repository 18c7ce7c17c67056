"""Claims of CCRDN, in the order of its evaluation.  D is DCell, β is beta-DCell, F is FiConn."""

from __future__ import annotations

from statistics import mean

from weft.experiments.report.claims import (
    AtLeast,
    AtMost,
    Between,
    Claim,
    Form,
    NotComparable,
    Query,
    Rule,
    Where,
    Within,
)

D33, D34, D36 = ("dcell:n=3,k=3", "dcell:n=4,k=3", "dcell:n=6,k=3")
B33, B34, B36 = ("beta-dcell:n=3,k=3", "beta-dcell:n=4,k=3", "beta-dcell:n=6,k=3")
F236, F38, F310 = ("ficonn:n=36,k=2", "ficonn:n=8,k=3", "ficonn:n=10,k=3")
LEVEL_2 = {
    "D": ("dcell:n=11,k=2", "dcell:n=18,k=2", "dcell:n=43,k=2"),
    "β": ("beta-dcell:n=11,k=2", "beta-dcell:n=18,k=2", "beta-dcell:n=43,k=2"),
    "F": ("ficonn:n=22,k=2", F236, "ficonn:n=48,k=2"),
}
OTHER_NETWORK = "The printed number is that of a smaller network; the definition gives ours."
COMPILED = "A compiled search takes a few microseconds; the paper charges for one at each hop."
FLOWS = 10_000_000
UNIFORM = f"uniform:flows={FLOWS}"


def shorter(topology: str, routing: str = "pr-gpi") -> Query:
    """Return by how much routes of a scheme are shorter than DR's."""
    where = {"topology": topology, "routing": routing}
    over = {"routing": "dr"}
    return Query("hop_length", where, "mean_hops", over, Form.SAVING, seeds=10)


def searched(topology: str, routing: str, column: str, form: Form = Form.VALUE) -> Query:
    where = {"topology": topology, "routing": routing}
    return Query("hop_length", where, column, form=form)


def connected(topology: str | tuple[str, ...], routing: str, *, seeds: int = 10) -> Query:
    """Return the pairs that are connected; of several networks the least."""
    return Query(
        "connectivity",
        {"topology": topology, "routing": routing},
        "connected_fraction",
        form=Form.PERCENT,
        statistic=mean if isinstance(topology, str) else min,
        seeds=seeds,
    )


def hops_under_faults(topology: str, routing: str, over: dict[str, str | float]) -> Query:
    """Return mean hops with failed links; by how much they are longer if divided."""
    where = {"topology": topology, "routing": routing}
    form = Form.GAIN if over else Form.VALUE
    return Query("connectivity", where, "mean_hops", over, form, seeds=10)


def histogram(topology: str, routing: str, failed_fraction: float, bins: tuple[int, int]) -> Query:
    where: Where = {"topology": topology, "routing": routing, "failed_fraction": failed_fraction}
    column = "pairs_by_hops_fraction"
    return Query("hop_histogram", where, column, form=Form.PERCENT, bins=bins)


def fullest_link(topology: str) -> Query:
    where = {"topology": topology, "routing": "pr-gpi"}
    return Query("flow_histogram", where, "bottleneck_flows", {"routing": "dr"}, Form.GAIN)


def carried(column: str, topology: str, routing: str) -> Query:
    where = {"topology": topology, "routing": routing, "traffic": UNIFORM}
    return Query("throughput", where, column, {"routing": "dr"}, Form.GAIN)


def sooner(topology: str, workload: str) -> Query:
    where = {"topology": topology, "routing": "pr-gpe", "workload": workload}
    return Query("completion_time", where, "completion_s", {"routing": "dr"}, Form.SAVING)


def latency(name: str, topology: str, routing: str, paper: float, rule: Rule, why: str) -> Claim:
    where = {"topology": topology, "routing": routing, "costs": "paper"}
    query = Query("zero_load_latency", where, "latency_ms")
    scheme = {"dr": "DR", "pr-gp0": "GP_0", "pr-gpi": "GP_I", "pr-gpe": "GP_E"}[routing]
    return Claim(f"latency without load, {name}, {scheme}", "table 2", paper, query, rule, why)


SIZES = (
    Claim(
        "sizes of the nine networks that are as printed",
        "table 1",
        100,
        Query("ccrdn_properties", {}, "as_in_paper", form=Form.PERCENT, statistic=min),
        Within(0),
    ),
)
HOPS = (
    Claim(
        "GP_I shortens DR's routes by up to (β3,3)",
        "section 7.1, figure 3",
        16,
        shorter(B33),
        Within(0.05),
        in_readme=True,
    ),
    Claim("... (D3,3)", "section 7.1, figure 3", 10, shorter(D33), Within(0.1)),
    Claim(
        "... (F3,8)",
        "section 7.1, figure 3",
        "6 to 7 %",
        shorter(F38),
        Between(6, 7),
        "Shortest paths themselves gain less than the paper says.",
    ),
    Claim("shortest paths shorten them by (F3,8)", "figure 3", "", shorter(F38, "bfs")),
    Claim(
        "mean hops of DR, D3,4",
        "section 7.2",
        10.2,
        searched(D34, "dr", "mean_hops"),
        Within(0.05),
        OTHER_NETWORK,
    ),
    Claim(
        "pairs that GP_I shortens, D3,6",
        "section 7.1",
        30,
        searched(D36, "pr-gpi", "shorter_fraction", Form.PERCENT),
        Within(0.1),
    ),
    *(
        Claim(
            f"candidates of GP_0 for a pair, {name}",
            "section 7.1, figure 4",
            paper,
            searched(topology, "pr-gp0", "candidates_per_pair"),
            Within(0.05),
            why,
        )
        for name, topology, paper, why in (
            ("D3,6", D36, 12, ""),
            ("β3,6", B36, 12, ""),
            ("F3,10", F310, 3.9, "The printed number is that of F3,16, ours that of F3,10."),
        )
    ),
    *(
        Claim(
            f"routes of GP_E are longer than shortest paths by, {name}",
            "section 7.1, figure 3",
            "sometimes 0 %",
            Query(
                "hop_length",
                {"topology": topology, "routing": "pr-gpe"},
                "mean_hops",
                {"routing": "bfs"},
                Form.GAIN,
            ),
            why="The paper names no network.",
        )
        for name, topology in (("D2,18", "dcell:n=18,k=2"), ("D3,3", D33), ("β3,3", B33))
    ),
)
FAULTS = (
    Claim(
        "pairs that GP_I connects, D3,4",
        "section 7.2, figure 6",
        85,
        connected(D34, "pr-gpi"),
        Within(0.05),
    ),
    Claim("... β3,4", "section 7.2, figure 6", 85, connected(B34, "pr-gpi"), Within(0.05)),
    *(
        Claim(
            f"... {name} with k = 2, the least",
            "section 7.2, figure 5",
            "80 to 90 %",
            connected(topologies, "pr-gpi", seeds=3),
            Between(80, 90),
            why,
        )
        for (name, topologies), why in zip(
            LEVEL_2.items(),
            ("", "", "Fault sets differ: the paper's simulator draws them by node and port."),
            strict=True,
        )
    ),
    Claim(
        "pairs that DR connects, D3,4",
        "figure 6",
        "",
        connected(D34, "dr"),
        why="The paper's value is in a plot alone.",
    ),
    Claim(
        "pairs that DFR connects, D3,4",
        "section 7.2",
        95,
        connected(D34, "dfr"),
        Within(0.05),
        in_readme=True,
    ),
    Claim(
        "mean hops of DFR under faults, D3,4",
        "section 7.2",
        14,
        hops_under_faults(D34, "dfr", {}),
        Within(0.05),
    ),
    Claim(
        "mean hops of GP_I under faults, D3,4",
        "section 7.2",
        10.7,
        hops_under_faults(D34, "pr-gpi", {}),
        Within(0.05),
        OTHER_NETWORK,
    ),
    *(
        Claim(
            f"routes under faults are longer than DR's without: {words}",
            "section 7.2",
            paper,
            hops_under_faults(topology, routing, {"routing": "dr", "failed_fraction": 0.0}),
            rule,
            why,
        )
        for words, topology, routing, paper, rule, why in (
            (
                "DFR, D3,4",
                D34,
                "dfr",
                35,
                AtLeast(35),
                "The paper divides by DR's 10.2 hops, which are those of D3,3.",
            ),
            ("GP_I, D3,4", D34, "pr-gpi", 5, Within(0.3), ""),
            ("GP_I, β3,4", B34, "pr-gpi", 0, Between(-1, 1), ""),
        )
    ),
    Claim(
        "GP_I connects as many with groups of 50, D3,4",
        "section 7.2",
        "consistent",
        Query(
            "connectivity",
            {"topology": D34, "routing": "pr-gpi", "traffic": "many-all-to-all:group=50"},
            "connected_fraction",
            {"traffic": "uniform"},
            Form.GAIN,
            seeds=10,
        ),
        Between(-2, 2),
    ),
    Claim(
        "routes of 15 hops, DR on F3,10",
        "section 7.2, figure 9",
        35,
        histogram(F310, "dr", 0.0, (15, 15)),
        Within(0.05),
    ),
    *(
        Claim(
            f"pairs with routes over 15 hops, GP_I under faults, {name}",
            place,
            paper,
            histogram(topology, "pr-gpi", 0.1, (16, 99)),
            rule,
        )
        for name, topology, place, paper, rule in (
            ("D3,3", D33, "section 7.2, figure 7", "few", AtMost(5)),
            ("β3,3", B33, "section 7.2, figure 8", "few", AtMost(5)),
            ("F3,10", F310, "section 7.2, figure 9", "more", AtLeast(5)),
        )
    ),
    Claim(
        "pairs with routes over 19 hops, GP_I under faults, F3,10",
        "section 7.2, figure 9",
        "few",
        histogram(F310, "pr-gpi", 0.1, (20, 99)),
        AtMost(5),
    ),
    *(
        Claim(
            f"routes of TAR are longer than DR's, {name}",
            "section 7.2, after Li et al.",
            "15 to 30 %",
            Query(
                "hop_length",
                {"topology": topology, "routing": "tar"},
                "mean_hops",
                {"routing": "dr"},
                Form.GAIN,
            ),
            Between(15, 30),
            why,
        )
        for name, topology, why in (
            ("F2,36", F236, ""),
            ("F3,10", F310, "TAR's detours depend on the flows before; Li et al. have others."),
        )
    ),
)
LOAD = (
    Claim(
        "flows on the most loaded link, GP_I against DR, D3,3",
        "figure 10",
        "less",
        fullest_link(D33),
        AtMost(0),
    ),
    Claim("... β3,3", "figure 11", "less", fullest_link(B33), AtMost(0)),
    Claim("... F3,10", "figure 12", "not less", fullest_link(F310), AtLeast(0)),
    *(
        Claim(
            f"UAT gains, {name}",
            "section 7.3, figure 13a",
            paper,
            carried("uat_bps", topology, "pr-gpe"),
            rule,
            why,
        )
        for name, topology, paper, rule, why in (
            ("GP_E on β3,3", B33, "up to 30 %", AtMost(31), ""),
            ("GP_E on β3,4", B34, "up to 30 %", AtMost(31), ""),
            ("GP_E on D3,3", D33, "up to 30 %", AtMost(31), ""),
            ("GP_E on F2,36", F236, "below 5 %", AtMost(5), ""),
            ("GP_E on F3,10", F310, "below 5 %", AtMost(5), ""),
            ("GP_E on D2,18", "dcell:n=18,k=2", "below 5 %", AtMost(5), ""),
            (
                "GP_E on β2,18",
                "beta-dcell:n=18,k=2",
                "below 5 %",
                AtMost(5),
                "Shorter routes gain a little more here than the paper's bound.",
            ),
        )
    ),
    *(
        Claim(
            f"RAT gains of {scheme} on β3,3",
            "section 7.3, figure 13b",
            paper,
            carried("rat_bps", B33, routing),
            rule,
            why,
        )
        for scheme, routing, paper, rule, why in (
            ("GP_I", "pr-gpi", 55, Within(0.05), ""),
            (
                "GP_E",
                "pr-gpe",
                "up to 55 %",
                AtMost(56),
                "The gain falls as the number of flows grows.",
            ),
        )
    ),
    Claim(
        "... of GP_I with the paper's 100 million flows",
        "section 7.3, figure 13b",
        55,
        Query(
            "throughput",
            {"topology": B33, "routing": "pr-gpi", "traffic": "uniform:flows=100000000"},
            "rat_bps",
            {"routing": "dr"},
            Form.GAIN,
        ),
        Within(0.05),
        "With few flows chance lifts DR's most loaded link further above the mean.",
    ),
    Claim(
        "RAT gains of GP_I on F2,36",
        "section 7.3, figure 13b",
        "no effect",
        carried("rat_bps", F236, "pr-gpi"),
        Between(-3, 3),
    ),
    Claim(
        "RAT gains of GP_I on F3,10",
        "section 7.3, figure 13b",
        "below 0 %",
        carried("rat_bps", F310, "pr-gpi"),
        AtMost(0),
    ),
)
LATENCY = (
    Claim(
        "latency of stack, propagation and data for a hop",
        "section 7.4",
        "10, 22, 38 µs",
        why="These are costs of a machine; table 2 takes the paper's.",
    ),
    *(
        latency(name, topology, routing, paper, rule, why)
        for name, topology, row in (
            ("F3,10", F310, (0.913, 0.894, 0.908, 1.122)),
            ("D3,4", D34, (0.795, 0.752, 0.796, 1.400)),
            ("β3,4", B34, (0.794, 0.714, 0.742, 1.361)),
        )
        for routing, paper, rule, why in zip(
            ("dr", "pr-gp0", "pr-gpi", "pr-gpe"),
            row,
            (Within(0.05), Within(0.05), Within(0.1), NotComparable()),
            ("", "", "", COMPILED),
            strict=True,
        )
    ),
)
COMPLETION = (
    Claim(
        "proxies shorten completion by up to, D3,4, one-to-all",
        "section 8, figure 14",
        35,
        sooner(D34, "one-to-all"),
        Within(0.1),
        "DR sends three quarters of one-to-all over one link.",
    ),
    Claim(
        "... β3,4, one-to-all",
        "section 8, figure 14",
        40,
        sooner(B34, "one-to-all"),
        Within(0.1),
        "One-to-all gains more here than the paper says.",
    ),
    *(
        Claim(
            f"... {name}, {words}",
            "section 7.5, figure 14",
            paper,
            sooner(topology, workload),
            rule,
            why,
        )
        for name, topology, words, workload, paper, rule, why in (
            ("D3,4", D34, "uniform", "uniform:messages=1", "above 0 %", AtLeast(0), ""),
            ("D3,4", D34, "groups of 5", "many-all-to-all:group=5", "above 0 %", AtLeast(0), ""),
            ("β3,4", B34, "uniform", "uniform:messages=1", "above 0 %", AtLeast(0), ""),
            ("β3,4", B34, "groups of 5", "many-all-to-all:group=5", "above 0 %", AtLeast(0), ""),
            ("F3,10", F310, "one-to-all", "one-to-all", "above 0 %", AtLeast(0), ""),
            ("F3,10", F310, "groups of 5", "many-all-to-all:group=5", "poor", AtMost(5), ""),
        )
    ),
)
CLAIMS = (*SIZES, *HOPS, *FAULTS, *LOAD, *LATENCY, *COMPLETION)
