"""Claims of FatPaths, in the order of its figures and tables."""

from __future__ import annotations

from weft.experiments.fatpaths.fatpaths_fct import IN_TREES as BLIND
from weft.experiments.fatpaths.fatpaths_fct import PAPERS
from weft.experiments.fatpaths.table_iv import TABLE_IV
from weft.experiments.report.claims import (
    AtLeast,
    AtMost,
    Between,
    Claim,
    Form,
    NotComparable,
    Query,
    Sweep,
    Where,
    Within,
)
from weft.experiments.runner.parameters import Scalar

SLIMFLY, FATTREE = "slimfly:q=5,p=4", "fattree:k=8,oversubscription=2"
# Networks of the paper's size, about 10,000 hosts.
SLIMFLY_10K, FATTREE_10K = "slimfly:q=19,p=14", "fattree:k=28,oversubscription=2"
SMALL = "Networks of this size are far smaller than the paper's."
SIZE_10K = "Flows of 10 ms in networks of about 10,000 hosts."
FLOWS: dict[str, Scalar] = {
    "topology": SLIMFLY_10K,
    "routing": "layers",
    "construction": "random",
    "mapping": "random",
}
TCP: dict[str, Scalar] = {"mapping": "random"}
WORST: dict[str, Scalar] = {"topology": "slimfly:q=7,p=6", "intensity": 0.55}
NINE: dict[str, Scalar] = {
    "topology": SLIMFLY,
    "scheme": "random",
    "layers": 9,
    "intensity": 1.0,
    "bound": "none",
}

DIRECT_10K = (
    SLIMFLY_10K,
    "dragonfly:p=7,palm=0",
    "xpander:r=27,l=27,p=13,seed=1",
    "hyperx:l=3,s=10,p=10",
    "jellyfish:n=722,r=29,p=14,seed=1",
)
SLIMFLY_80K = "slimfly:q=37,p=28"
BOTH = ("linear", "random")
RANDOM_LAYERS: Where = {"routing": "layers", "construction": "random"}
IN_TREES: Where = {"routing": "layers", "construction": "intree"}
MINIMAL: Where = {"routing": "ecmp", "construction": "random"}
TREE: Where = {"routing": ("flowlets", "spray"), "construction": "random"}
PAPER_TCP: Where = {"layers": 4, "seconds": 0.01}
RHO = (0.4, 0.6, 0.8, 1.0)
SIZES = (  # of Slim Fly and fat-tree
    (SLIMFLY, FATTREE),
    ("slimfly:q=7,p=6", "fattree:k=10,oversubscription=2"),
    ("slimfly:q=11,p=9", "fattree:k=16,oversubscription=2"),
    (SLIMFLY_10K, FATTREE_10K),
)
FIRST: Where = {
    "topology": (SLIMFLY, "slimfly:q=7,p=6", "slimfly:q=11,p=9"),
    "mapping": "linear",
    "transport": "ndp:retransmissions=first",
}
BESIDE_HTSIM: Where = {
    "topology": "fattree:k=4",
    "traffic": ("incast:senders=4", "incast:senders=15"),
    "transport": "ndp",
    "message_kb": (18, 90, 450, 1800),
    "rate_mbps": 10_000,
    "frame_bytes": 9064,  # payloads of 9,000 bytes, as htsim's
}
UNNOTICED: Where = {"topology": "slimfly:q=5,p=4", "failed_fraction": 0.02, "known_us": 0}
SWEEPS = (
    Sweep("fatpaths_failover", {"clock": "virtual"}),
    *(
        Sweep("ndp_incast", {"engine": engine, **BESIDE_HTSIM}, 10)
        for engine in ("packet", "kernel")
    ),
    Sweep("fatpaths_fct"),
    Sweep("fatpaths_stencil"),
    *(
        Sweep("fatpaths_vs_fattree", {"topology": topology, "mapping": BOTH, **where})
        for slimfly, fattree in SIZES
        for topology, where in (
            (slimfly, RANDOM_LAYERS),
            (slimfly, IN_TREES),
            (slimfly, MINIMAL),
            (fattree, TREE),
        )
    ),
    Sweep(
        "fatpaths_vs_fattree",
        {"topology": DIRECT_10K[1:], "mapping": BOTH, **RANDOM_LAYERS},
    ),
    *(  # flowlets by the number of paths that they choose among
        Sweep(
            "fatpaths_vs_fattree",
            {
                "topology": fattree,
                "mapping": "linear",
                "routing": "flowlets",
                "construction": "random",
                "layers": (9, 63),
            },
        )
        for _, fattree in SIZES[:3]
    ),
    Sweep("fatpaths_vs_fattree", {**FIRST, **RANDOM_LAYERS}),
    Sweep("fatpaths_vs_fattree", {**FIRST, **IN_TREES}),
    Sweep(
        "fatpaths_vs_fattree",
        {"topology": SLIMFLY_80K, "mapping": "random", "seconds": 0.005, **RANDOM_LAYERS},
        seeds=1,
    ),
    Sweep("layered_throughput", {"intensity": 0.55, "mice": 0.9, "bound": "none"}),
    Sweep("fatpaths_feedback"),
    Sweep("ndp_failover"),
    *(
        Sweep("ndp_failover", {**UNNOTICED, name: values})
        for name, values in (
            ("timeout_us", (300, 1000, 10_000)),
            ("attempts", (3, 30)),
            ("backoff", "packet"),
        )
    ),
    Sweep("ndp_load", {"engine": "packet", "transport": "ndp"}),
    Sweep(
        "ndp_load",
        {
            "engine": "packet",
            "transport": "ndp",
            "topology": SLIMFLY_10K,
            "lambda_per_s": (100, 250),
            "seconds": 0.02,
        },
    ),
    Sweep("fatpaths_density", seeds=5),
    Sweep(
        "fatpaths_density",
        {"topology": SLIMFLY_10K, "layers": (9, 63), "rho": (0.4, 0.8)},
        seeds=1,
    ),
    Sweep(
        "fatpaths_tcp",
        {
            "topology": (
                *("slimfly:q=11,p=9", "dragonfly:p=4,palm=0", "xpander:r=16,l=16,p=8,seed=1"),
                *("hyperx:l=3,s=6,p=5", "jellyfish:n=242,r=17,p=9,seed=1"),
            ),
            "routing": "layers",
            "rho": RHO,
            **PAPER_TCP,
        },
        seeds=5,
    ),
    Sweep("fatpaths_tcp", {"topology": SLIMFLY_10K, **PAPER_TCP}, seeds=5),
    *(
        Sweep(
            "fatpaths_tcp",
            {
                "topology": "slimfly:q=3,p=3",
                "mapping": "linear",
                "routing": ("ecmp", "layers"),
                "rho": 0.6,
                "load_fraction": 0.2,
                "rto_min_us": 10_000,
                **engine,
            },
            seeds=5,
        )
        for engine in ({}, {"engine": "kernel", "clock": "virtual"})
    ),
    Sweep(
        "fatpaths_tcp",
        {
            "topology": DIRECT_10K[1:],
            "routing": ("ecmp", "layers"),
            "rho": 0.6,
            **PAPER_TCP,
        },
        seeds=1,
    ),
    Sweep(
        "fatpaths_tcp",
        {
            "topology": "slimfly:q=7,p=6",
            "mapping": "linear",
            "routing": ("ecmp", "layers"),
            "rho": 0.6,
            "load_fraction": (0.16, 0.24),
            "seconds": (0.01, 0.02, 0.04, 0.08),
        },
        seeds=10,
    ),
)

THROUGHPUT = tuple(
    Claim(
        f"throughput of a flow on Slim Fly over that on a fat-tree with {name}, random mapping",
        "abstract, figures 2 and 11",
        paper,
        Query("fatpaths_vs_fattree", FLOWS, column, {"topology": FATTREE_10K, "routing": routing}),
        rule,
        SIZE_10K,
    )
    for name, routing, paper, column, rule in (
        ("flowlets", "flowlets", "2 to 4", "throughput_mean_fraction", Between(2, 4)),
        ("sprayed packets", "spray", 1.15, "throughput_mean_fraction", Within(0.1)),
    )
)
DIVERSITY = tuple(
    Claim(
        f"{words}, {label}",
        "table IV",
        paper,
        Query("diversity", {"topology": topology, "hops": 0}, column, form=Form.PERCENT),
        Within(0.1),
        "The tail is of few draws, and seeds differ by a port." if "tail" in words else "",
    )
    for topology, network in TABLE_IV.items()
    for label in (network.label,)
    for words, column, paper in (
        ("disjoint paths of k', mean", "cdp_mean_fraction", network.cdp[0]),
        ("interference of k', 99.9 % tail", "interference_tail_fraction", network.interference[1]),
    )
    if paper and label in ("SF", "DF", "HX", "XP")
)
TIMES = tuple(
    Claim(
        f"time of long flows over layers by that with ECMP, TCP, {words}",
        place,
        paper,
        Query("fatpaths_fct", TCP | {"scheme": scheme}, column, {"scheme": "ecmp"}),
        rule,
        "The paper says that some flows are so much faster; ours is of all, at a steady load.",
    )
    for words, scheme, column, place, paper, rule in (
        ("four layers, mean", PAPERS, "long_mean_ms", "figure 14", "some 0.4", NotComparable()),
        ("four layers, 99th percentile", PAPERS, "long_p99_ms", "figure 16", 0.5, AtMost(0.5)),
        ("nine in-trees, mean", BLIND, "long_mean_ms", "figure 14", "some 0.4", NotComparable()),
    )
)
CLAIMS = (
    *THROUGHPUT,
    Claim(
        "latency of short flows over that on a fat-tree with flowlets",
        "abstract",
        0.5,
        Query(
            "fatpaths_vs_fattree",
            FLOWS,
            "short_mean_ms",
            {"topology": FATTREE_10K, "routing": "flowlets"},
        ),
        AtMost(0.5),
        SIZE_10K,
    ),
    Claim(
        "router pairs of a clique with nine or more flows, permutation",
        "figure 4",
        "more than 1 %",
        Query(
            "collisions",
            {"topology": "complete:n=101,p=100", "pattern": "permutation"},
            "nine_or_more_fraction",
            form=Form.PERCENT,
        ),
        AtLeast(1),
        "A Poisson law with one flow a pair gives one in a million.",
    ),
    Claim(
        "router pairs of Slim Fly with one shortest path",
        "figure 6",
        "most",
        Query(
            "diversity",
            {"topology": "slimfly:q=19,p=14", "hops": 0},
            "one_shortest_fraction",
            form=Form.PERCENT,
        ),
        AtLeast(50),
    ),
    *DIVERSITY,
    Claim(
        "distributions of disjoint paths and interference",
        "figures 7 and 8",
        "",
        why="They are curves: `weft run diversity --set hops=2,3,4` draws them.",
    ),
    Claim(
        "T of overlap over random layers, Slim Fly",
        "figure 9",
        "above 1",
        Query(
            "layered_throughput", WORST | {"scheme": "overlap"}, "throughput", {"scheme": "random"}
        ),
        AtLeast(1),
        "Both have their best parameters here.",
    ),
    Claim(
        "T of random layers over SPAIN, Slim Fly",
        "figure 9",
        "above 1",
        Query(
            "layered_throughput", WORST | {"scheme": "random"}, "throughput", {"scheme": "spain"}
        ),
        AtLeast(1),
    ),
    Claim(
        "cost of a host, Slim Fly over a fat-tree of two to one, 10,000 hosts",
        "figure 10",
        "similar",
        Query(
            "topology_cost",
            {"family": "slimfly", "hosts": 10_000},
            "host_cost_usd",
            {"family": "fattree2"},
        ),
        Between(0.8, 1.2),
        "The paper's prices are in an image; ours are round numbers.",
    ),
    Claim(
        "router pairs with three disjoint paths in nine random layers",
        "figure 12",
        "all",
        Query("layered_throughput", NINE, "three_disjoint_fraction", form=Form.PERCENT),
        AtLeast(90),
    ),
    Claim(
        "flows in networks of 80,000 and a million hosts",
        "figure 13",
        "",
        why="The figure has the smaller of these; the larger was not run.",
    ),
    *TIMES,
    Claim(
        "distribution of flow times with TCP",
        "figure 15",
        "",
        why="It is a curve: the figure shows ours.",
    ),
    Claim(
        "completion of a stencil of 2 MB flows over layers by that with ECMP",
        "figure 17",
        "below 0.4",
        Query(
            "fatpaths_stencil",
            {"scheme": PAPERS, "mapping": "linear", "flow_bytes": 2_000_000},
            "completion_s",
            {"scheme": "ecmp"},
        ),
        AtMost(0.4),
        SMALL,
    ),
    Claim(
        "cables for each host, Slim Fly over a fat-tree",
        "figure 19",
        "below 1",
        Query(
            "topology_cost",
            {"family": "slimfly", "hosts": 10_000},
            "edge_density",
            {"family": "fattree"},
        ),
        AtMost(1),
    ),
    Claim(
        "throughput of long flows at lambda = 250, NDP on a crossbar",
        "figure 20",
        "",
        Query(
            "ndp_load",
            {"topology": "star:n=60", "transport": "ndp", "lambda_per_s": 250},
            "long_throughput_mean_fraction",
        ),
        why="The figure has no numbers.",
    ),
    Claim(
        "time of short flows over size / mu + delta at lambda = 250, NDP on a crossbar",
        "figure 21",
        "",
        Query(
            "ndp_load",
            {"topology": "star:n=60", "transport": "ndp", "lambda_per_s": 250},
            "short_normalised_mean",
        ),
        why="The figure has no numbers.",
    ),
)
