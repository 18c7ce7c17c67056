"""Candidate routes, which follow from the topology alone.

BCubeRouting (Guo et al., SIGCOMM 2009, section 3.2): correct the digits of the label in order.

The most significant digit that differs is corrected first, so that a prefix of the destination's
label decides the next server, as in dimensional routing (CCRDN, definition 4.1).  A path has as
many hops as digits differ, which is the least there is.

On GQ* a digit takes two hops: over the switch to the server on the edge that corrects it, and over
the edge.  A third kind leads over the last switch.  The first hop is spared if the source is on
such an edge, the last one if the destination is at the end of the last edge.  So a server that can
correct a digit over its own edge does, and an edge of the destination is taken last: otherwise the
most significant digit comes first.  With m digits a path has 2m - 1 to 2m + 1 hops, the least there
are; INRFlow, which keeps one order of digits, has as many or more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.daemons.core.actions import Hop
from weft.daemons.routing import dr
from weft.topologies.core.address import Prefix
from weft.topologies.recursive.ccrdn import CcrdnNaming
from weft.topologies.recursive.hypercubes import BcubeNaming, GqstarNaming

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


def gqstar_route(naming: GqstarNaming, src: int, dst: int) -> list[int]:
    """Return the servers from `src` to `dst`, both included."""
    path = [src]
    while path[-1] != dst:
        path.append(_gqstar_hop(naming, path[-1], dst).node)
    return path


def gqstar_routes(naming: GqstarNaming, server: int) -> list[tuple[Prefix, Hop]]:
    """Return the routing table of `server`: a prefix for each other value of each digit.

    Switches and servers within one have prefixes of their own where their next hop is another.
    """
    switch, layout = server // naming.ports, naming.layout
    first = switch * naming.ports
    beside = {*range(first, first + naming.ports)} - {server}
    routes = {layout.prefix(layout.label_of(other)): Hop(0, other) for other in beside}
    for target in {*range(naming.switches)} - {switch}:
        routes |= _gqstar_routes_to(naming, server, target)
    return list(routes.items())


def _gqstar_routes_to(naming: GqstarNaming, server: int, target: int) -> dict[Prefix, Hop]:
    """Return the routes of `server` that lead to the servers of another switch."""
    switch, layout = server // naming.ports, naming.layout
    wrong = _wrong(naming, switch, target)
    near = naming.beyond(switch, wrong[0], naming.digit(target, wrong[0]))
    usual, hop = (_gqstar_hop_to(naming, server, other) for other in (near, target))
    label = layout.label_of(target * naming.ports)[: naming.k]
    routes = {layout.prefix(label[: naming.k - wrong[0]]): usual}
    if hop != usual:
        routes[layout.prefix(label)] = hop
    for dimension in wrong:
        dst = naming.server(target, dimension, naming.digit(switch, dimension))
        if (own := _gqstar_hop(naming, server, dst)) != hop:
            routes[layout.prefix(layout.label_of(dst))] = own
    return routes


def _gqstar_hop(naming: GqstarNaming, server: int, dst: int) -> Hop:
    """Return the next hop from `server` to another server, `dst`."""
    target, dimension, value = naming.edge(dst)
    switch = server // naming.ports
    if switch == target:
        return Hop(0, dst)
    by_own_edge = value == naming.digit(switch, dimension)  # the last edge may end at dst itself
    return _gqstar_hop_to(naming, server, target, last=dimension if by_own_edge else -1)


def _gqstar_hop_to(naming: GqstarNaming, server: int, target: int, last: int = -1) -> Hop:
    """Return the next hop from `server` to another switch, whose digit `last` is corrected last."""
    switch, own, value = naming.edge(server)
    if value == naming.digit(target, own):
        return Hop(1, naming.partner(server))
    wrong = _wrong(naming, switch, target)
    dimension = next((digit for digit in wrong if digit != last), last)
    return Hop(0, naming.server(switch, dimension, naming.digit(target, dimension)))


def _wrong(naming: GqstarNaming, switch: int, target: int) -> list[int]:
    """Return the dimensions in which the words of two switches differ, the highest first."""
    return [
        dimension
        for dimension in range(naming.k - 1, -1, -1)
        if naming.digit(switch, dimension) != naming.digit(target, dimension)
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
    if isinstance(naming, GqstarNaming):
        return [(prefix, (hop,)) for prefix, hop in gqstar_routes(naming, node)]
    from weft.daemons.routing import updown

    return updown.prefix_routes(topology, node)
