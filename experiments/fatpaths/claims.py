"""Claims of FatPaths, in the order of its figures and tables."""

from __future__ import annotations

from weft.experiments.report.claims import AtMost, Between, Claim, Query

LAYERS_TCP = "fatpaths:construction=intree,trigger=cut,start=random"
FATTREE = "fattree:k=8,oversubscription=2"
CLAIMS = (
    *(
        Claim(
            f"throughput of a flow on Slim Fly over that on a fat-tree with {name}",
            "figure 2",
            "2 to 4",
            Query(
                "fatpaths_vs_fattree",
                {"topology": "slimfly:q=5,p=4", "routing": "layers", "mapping": "random"},
                "throughput_mean_fraction",
                {"topology": FATTREE, "routing": routing},
            ),
            Between(2, 4),
        )
        for name, routing in (("flowlets", "flowlets"), ("sprayed packets", "spray"))
    ),
    *(
        Claim(
            f"time of long flows over layers by that with ECMP, skewed traffic: {words}",
            "figure 14",
            "below 0.4",
            Query(
                "fatpaths_fct",
                {"scheme": LAYERS_TCP, "mapping": "linear"},
                column,
                {"scheme": "ecmp"},
            ),
            AtMost(0.4),
        )
        for words, column in (("mean", "long_mean_ms"), ("99th percentile", "long_p99_ms"))
    ),
)
