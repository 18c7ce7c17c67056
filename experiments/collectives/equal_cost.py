"""All-reduce on networks that cost the same in all: which is first where.

Two sizes: 128 ranks on networks of 207,000 to 234,000 USD, and 256 ranks on networks of 502,000 to
570,000 USD, at the prices of topology_cost.  Ranks are on all hosts, or on all but a few where a
family has no network of just so many.  Xpander and Jellyfish are three graphs each.
"""

from __future__ import annotations

from collections.abc import Iterator

from weft.experiments.report.claims import Sweep, Where
from weft.topologies.core.placement import LINEAR, RANDOM

GRAPHS = (1, 2, 3)  # seeds of a random graph
NETWORKS = {
    128: (
        *("slimfly:q=4,p=4", "polarfly:q=5,p=5", "dragonfly:p=4,a=4,h=2,palm=0"),
        *("hyperx:l=3,s=3,p=5", "clos:n=8,r=16,m=6"),
    ),
    256: (
        *("polarfly:q=7,p=5", "dragonfly:p=4,a=4,h=4,palm=0", "hyperx:l=3,s=4,p=4"),
        *("clos:n=8,r=32,m=8", "fattree:k=8,oversubscription=2"),
    ),
}
RANDOM_NETWORKS = {
    128: ("xpander:r=6,l=4,p=5", "jellyfish:n=32,r=5,p=4"),
    256: ("xpander:r=7,l=8,p=4", "jellyfish:n=64,r=7,p=4"),
}
# UGAL has no detour on Clos and fat-tree, which are refused there.
CHOICES: tuple[Where, ...] = (
    {"scheme": ("rps", "drill", "ugal")},
    {"scheme": "fatpaths:trigger=cut,start=random", "transport": "ndp:choice=reps"},
)
ORDERS = ("rabenseifner", "rabenseifner-nearest")
SMALL, MIDDLE, LARGE = 1 << 16, 1 << 20, 1 << 26
# Cases by the number of ranks: algorithms, sizes, and seeds on networks that are no random graph.
CASES = {
    128: (
        (("recursive-doubling", *ORDERS), (SMALL,), 3),
        (("ring", *ORDERS), (MIDDLE,), 3),
        (("ring", *ORDERS), (LARGE,), 2),
    ),
    256: ((ORDERS, (SMALL, MIDDLE), 3),),
}


def sweeps() -> Iterator[Sweep]:
    """Yield the runs of the study; a random graph has one seed of its own."""
    for ranks, cases in CASES.items():
        graphs = tuple(f"{spec},seed={seed}" for spec in RANDOM_NETWORKS[ranks] for seed in GRAPHS)
        for algorithms, sizes, seeds in cases:
            case: Where = {"ranks": ranks, "algorithm": algorithms, "size_bytes": sizes}
            case |= {"placement": (LINEAR, RANDOM)}
            for choice in CHOICES:
                yield Sweep("collectives", {"topology": NETWORKS[ranks], **case, **choice}, seeds)
                yield Sweep("collectives", {"topology": graphs, **case, **choice}, 1)


SWEEPS = tuple(sweeps())
