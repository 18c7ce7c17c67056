"""Two-dimensional torus of n x n routers with p hosts each.

Router r is in row r // n and column r % n.  Links along rows have level 1, links along columns
level 2.  With n = 2 both neighbours in a row are the same router, joined by one link.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from weft.topologies.core.family import Family, IntegerParameter
from weft.topologies.low_diameter.routers import require_routers, wired

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology


def build(parameters: Mapping[str, int]) -> Topology:
    """Return the n x n torus."""
    import numpy as np

    n, hosts = parameters["n"], parameters["p"]
    require_routers("torus", n * n, hosts, 2 * n * n)
    row, column = np.divmod(np.arange(n * n), n)
    right = row * n + (column + 1) % n
    below = (row + 1) % n * n + column
    levels = [
        np.unique(np.sort(np.stack([np.arange(n * n), other], axis=1), axis=1), axis=0)
        for other in (right, below)
    ]
    return wired(
        "torus",
        parameters,
        routers=n * n,
        hosts=hosts,
        levels=levels,
        roles=("host", "local", "global"),
    )


FAMILIES = {
    "torus": Family(
        name="torus",
        summary="an n x n array of routers, each joined to the next in its row and column, "
        "the last to the first",
        source="Dally and Towles, Principles and Practices of Interconnection Networks, 2004",
        example="torus:n=4,p=1",
        parameters={
            "n": IntegerParameter(meaning="routers in a row", least=2, most=256),
            "p": IntegerParameter(meaning="hosts of a router", least=1, default=1),
        },
        build=build,
    ),
}
