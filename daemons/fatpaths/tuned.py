"""Parameters of constructions that carry the most worst-case traffic, by family of networks and n.

Measured by `weft run layered_throughput`, see docs/notes/fatpaths_graphs.md.  In FatPaths rho
"needs to be tuned at least for a given topology and a given number of layers n" (section V-B1).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import NamedTuple


class Tuned(NamedTuple):
    """rho: fraction of links in a random layer.  paths: M of listing 2, of the routers."""

    rho: float
    paths: float


DEFAULT = Tuned(0.6, 1.0)
LEAST_TREES = 1.15  # links of a random layer, over those of a tree
BEST: Mapping[str, Mapping[int, Tuned]] = {
    "slimfly": {4: Tuned(0.4, 1.0), 9: Tuned(0.45, 1.4), 16: Tuned(0.5, 1.4)},
    "dragonfly": {4: Tuned(0.5, 1.4), 9: Tuned(0.6, 1.4), 16: Tuned(0.55, 1.0)},
    "hyperx": {4: Tuned(0.4, 0.7), 9: Tuned(0.4, 1.0)},
    "xpander": {4: Tuned(0.6, 2.0), 9: Tuned(0.5, 2.0), 16: Tuned(0.55, 2.0), 32: Tuned(0.5, 2.0)},
    "jellyfish": {
        4: Tuned(0.5, 2.0),
        9: Tuned(0.6, 4.0),
        16: Tuned(0.55, 4.0),
        32: Tuned(0.5, 4.0),
    },
    "fattree": {4: Tuned(0.9, 1.0), 16: Tuned(0.9, 1.4), 32: Tuned(0.8, 1.4)},
}


def connecting_rho(routers: int, links: int) -> float:
    """Return the least density that is tuned to: that of layers which join all routers."""
    return min(1.0, LEAST_TREES * (routers - 1) / max(1, links))


def tuned(family: str, layers: int) -> Tuned:
    """Return the best parameters of this family at the nearest measured number of layers."""
    measured = BEST.get(family)
    if not measured:
        return DEFAULT
    return measured[min(measured, key=lambda n: abs(log(n / layers)))]
