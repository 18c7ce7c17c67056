"""One router with all the hosts: a network in which only hosts contend (FatPaths, appendix D).

Host s3 is h3, 10.0.0.3, on port 3 of the router r0, 172.17.0.0.
"""

from __future__ import annotations

from collections.abc import Mapping

from weft.topologies.core.address import FabricNaming, Tier
from weft.topologies.core.family import Family, IntegerParameter
from weft.topologies.core.topology import Topology, require_room, wire


def build(parameters: Mapping[str, int]) -> Topology:
    """The star with n hosts."""
    import numpy as np

    n = parameters["n"]
    naming = FabricNaming([n], [Tier("r", (1,))])
    require_room("star", naming, n)
    servers = np.arange(n)
    return Topology.wired(
        "star", parameters, naming, [wire(servers, 0, n, servers)], server_centric=False
    )


FAMILIES = {
    "star": Family(
        name="star",
        summary="one router with all the hosts",
        source="FatPaths, appendix D",
        example="star:n=8",
        parameters={"n": IntegerParameter("hosts", 2)},
        build=build,
    ),
}
