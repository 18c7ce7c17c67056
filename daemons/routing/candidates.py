"""Candidate routes, which follow from the topology alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.daemons.core.actions import Hop
from weft.daemons.routing import bcube, dr
from weft.topologies.core.address import Prefix
from weft.topologies.recursive.bcube import BcubeNaming
from weft.topologies.recursive.ccrdn import CcrdnNaming

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology


def candidates(topology: Topology, node: int) -> list[tuple[Prefix, tuple[Hop, ...]]]:
    """Return the prefixes that router `node` forwards, each with its equally good next hops.

    They follow dimensional routing in a server-centric network, and all shortest paths in a switch
    fabric.
    """
    naming = topology.naming
    if isinstance(naming, CcrdnNaming):
        return [(prefix, (hop,)) for prefix, hop in dr.prefix_routes(naming.network, node)]
    if isinstance(naming, BcubeNaming):
        return [(prefix, (hop,)) for prefix, hop in bcube.prefix_routes(naming, node)]
    from weft.daemons.routing import updown

    return updown.prefix_routes(topology, node)
