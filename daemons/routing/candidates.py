"""Candidate routes, which follow from the topology alone.

BCubeRouting (Guo et al., SIGCOMM 2009, section 3.2): correct the digits of the label in order.

The most significant digit that differs is corrected first, so that a prefix of the destination's
label decides the next server, as in dimensional routing (CCRDN, definition 4.1).  A path has as
many hops as digits differ, which is the least there is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.daemons.core.actions import Hop
from weft.daemons.routing import dr
from weft.topologies.core.address import Prefix
from weft.topologies.recursive.bcube import BcubeNaming
from weft.topologies.recursive.ccrdn import CcrdnNaming

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology


def bcube_route(naming: BcubeNaming, src: int, dst: int) -> list[int]:
    """Return the servers from `src` to `dst`, both included."""
    path = [src]
    for level in range(naming.k, -1, -1):
        size = naming.n**level
        server = path[-1] + (dst // size % naming.n - src // size % naming.n) * size
        if server != path[-1]:
            path.append(server)
    return path


def bcube_routes(naming: BcubeNaming, server: int) -> list[tuple[Prefix, Hop]]:
    """Return the routing table of `server`: a prefix for each other value of each digit."""
    label = naming.layout.label_of(server)
    return [
        (
            naming.layout.prefix((*label[: naming.k - level], digit)),
            Hop(level, server + (digit - label[naming.k - level]) * naming.n**level),
        )
        for level in range(naming.k, -1, -1)
        for digit in range(naming.n)
        if digit != label[naming.k - level]
    ]


def candidates(topology: Topology, node: int) -> list[tuple[Prefix, tuple[Hop, ...]]]:
    """Return the prefixes that router `node` forwards, each with its equally good next hops.

    They follow dimensional routing in a server-centric network, and all shortest paths in a switch
    fabric.
    """
    naming = topology.naming
    if isinstance(naming, CcrdnNaming):
        return [(prefix, (hop,)) for prefix, hop in dr.prefix_routes(naming.network, node)]
    if isinstance(naming, BcubeNaming):
        return [(prefix, (hop,)) for prefix, hop in bcube_routes(naming, node)]
    from weft.daemons.routing import updown

    return updown.prefix_routes(topology, node)
