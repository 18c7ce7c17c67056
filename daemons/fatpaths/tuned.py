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
BEST: Mapping[str, Mapping[int, Tuned]] = {}


def tuned(family: str, layers: int) -> Tuned:
    """Return the best parameters of this family at the nearest measured number of layers."""
    measured = BEST.get(family)
    if not measured:
        return DEFAULT
    return measured[min(measured, key=lambda n: abs(log(n / layers)))]
