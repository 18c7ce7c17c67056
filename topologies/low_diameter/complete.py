"""The complete graph, or clique, of routers (FatPaths, appendix A-G)."""

from __future__ import annotations

from collections.abc import Mapping

from weft.topologies.core.family import Family, IntegerParameter
from weft.topologies.core.topology import Topology
from weft.topologies.low_diameter.routers import require_routers, wired


def build(parameters: Mapping[str, int]) -> Topology:
    """Return n routers, any two joined, p hosts each."""
    import numpy as np

    n, p = parameters["n"], parameters["p"]
    require_routers("complete", n, p, n * (n - 1) // 2)
    edges = np.stack(np.triu_indices(n, 1), axis=1)
    return wired("complete", parameters, routers=n, hosts=p, levels=[edges])


FAMILIES = {
    "complete": Family(
        name="complete",
        summary="n routers, any two joined, with p hosts each",
        source="FatPaths, appendix A-G",
        example="complete:n=5,p=4",
        parameters={
            "n": IntegerParameter("routers", 2),
            "p": IntegerParameter("hosts of a router", 1),
        },
        build=build,
    ),
}
