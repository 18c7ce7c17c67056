"""The complete graph, or clique, of routers (FatPaths, appendix A-G).

Ports: hosts on ports 0 .. p-1 of a router, then the other routers in order of number.

Names and addresses: routers r0, r1, ...; host s<router>.<host> is 10.0.<router>.<host>, so a router is a /24; router r1
is 172.17.0.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from topologies.core.address import FabricNaming, Tier
from topologies.core.family import Family, Parameter

if TYPE_CHECKING:
    from topologies.core.topology import Topology


def build(parameters: Mapping[str, int]) -> Topology:
    """n routers, any two joined, p hosts each."""
    import numpy as np

    from topologies.core.topology import Topology, require_room, wire

    n, p = parameters["n"], parameters["p"]
    naming = FabricNaming([n, p], [Tier("r", (n,))])
    require_room("complete", naming.layout, nodes=naming.servers + n, links=naming.servers + n * (n - 1) // 2)
    servers = np.arange(naming.servers)
    i, j = np.triu_indices(n, 1)
    levels = [
        wire(servers, 0, naming.servers + servers // p, servers % p),
        wire(naming.servers + i, p + j - 1, naming.servers + j, p + i),
    ]
    return Topology.wired("complete", parameters, naming, levels, server_centric=False)


FAMILIES = {
    "complete": Family(
        name="complete",
        summary="n routers, any two joined, with p hosts each",
        source="FatPaths, appendix A-G",
        example="complete:n=5,p=4",
        parameters={
            "n": Parameter(meaning="routers", least=2),
            "p": Parameter(meaning="hosts of a router", least=1),
        },
        build=build,
    ),
}
