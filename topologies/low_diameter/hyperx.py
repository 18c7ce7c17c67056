"""HyperX: s routers in each of l dimensions, all joined along rows (Ahn et al., SC 2009).

This is the regular one, a Hamming graph: s^l routers with k' = l (s - 1).  Each has p hosts, k' / l
= s - 1 unless p is given (FatPaths, appendix A-E).

The digits of a router's number in base s are its coordinates, the first dimension's being the last
digit.  A link along dimension d has level d; those of the first dimension are local, the others
global.
"""

from __future__ import annotations

from collections.abc import Mapping

from weft.topologies.core.family import Family, IntegerParameter
from weft.topologies.core.topology import Topology
from weft.topologies.low_diameter.routers import require_routers, wired


def build(parameters: Mapping[str, int]) -> Topology:
    """Return the regular HyperX of l dimensions and s routers in each."""
    import numpy as np

    l, s = parameters["l"], parameters["s"]  # noqa: E741, the paper's letter
    routers, hosts = s**l, parameters["p"]
    require_routers("hyperx", routers, hosts, routers * l * (s - 1) // 2)
    number = np.arange(routers)
    levels = []
    for dimension in range(l):
        step = s**dimension
        digit = number // step % s
        other = np.arange(s)
        far = number[:, None] + (other - digit[:, None]) * step
        ends = np.stack([np.broadcast_to(number[:, None], far.shape), far], axis=-1)
        levels.append(ends[number[:, None] < far])
    roles = ("host", "local", *["global"] * (l - 1))
    return wired(
        "hyperx",
        {"l": l, "s": s, "p": hosts},
        routers=routers,
        hosts=hosts,
        levels=levels,
        roles=roles,
    )


FAMILIES = {
    "hyperx": Family(
        name="hyperx",
        summary="an array of l dimensions and s routers in each, all joined along every row",
        source="Ahn et al., SC 2009; FatPaths, appendix A-E",
        example="hyperx:l=2,s=4,p=3",
        parameters={
            "l": IntegerParameter("dimensions", 1, 16),
            "s": IntegerParameter("routers in each dimension", 2),
            "p": IntegerParameter("hosts of a router, s - 1 by default", 1, optional=True),
        },
        build=build,
        derived=lambda values: {"p": values["s"] - 1},
    ),
}
