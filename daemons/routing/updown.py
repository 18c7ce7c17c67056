"""Equal-cost shortest paths in switch fabrics, tiered or not, as prefix routes of each switch.

In a fat-tree these go up, by any up-port that leads to a common ancestor, and then down the one way
there is (TTC, section 2).  Nothing here knows that, though: next hops are the neighbours that are
nearer to the destination's edge switch by breadth-first search over links that have not failed, and
hosts whose labels begin alike and whose next hops are the same share a route.  So it holds for any
fabric and for any failures.

Without failures an edge switch has a /32 for each of its hosts and one route up for the rest; an
aggregation switch, a prefix for each edge switch of its pod and one up; a core switch, a prefix for
each pod: O(ports + pods) routes.  Edge and aggregation switches also refuse the range of labels
that is theirs, in which their longer prefixes lie: else a packet for an address that no host has
would come down, and be sent up again by the route for the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from weft.daemons.core.actions import Hop
from weft.daemons.routing import shortest
from weft.topologies.core.address import EVERYTHING, AddressLayout, FabricNaming, Prefix

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

Hops = tuple[Hop, ...]


def prefix_routes(topology: Topology, node: int) -> list[tuple[Prefix, Hops]]:
    """The routing table of `node`, longer prefixes to be preferred: a host has its edge switch for
    everything.

    A host that cannot be reached has no route; a prefix without hops is an unreachable route.
    """
    up = _up(topology, node)
    if node < topology.servers:
        return [(EVERYTHING, up)] if up else []
    hops_to = next_hops(topology, node)
    layout, own = topology.naming.layout, _own_digits(topology, node)
    routes = [
        (digits, hops)
        for wide, hops in _aggregated(layout, hops_to, ())
        for digits in _split(topology, node, wide, hops)
    ]
    ways_up = Counter(hops for _, hops in routes if set(hops) <= set(up))
    if ways_up and all(hops_to):  # a route for the rest must not hide that a host is out of reach
        ((rest, _),) = ways_up.most_common(1)
        within = {
            digits
            for digits, _ in routes
            if own is not None and len(own) < len(digits) and digits[: len(own)] == own
        }
        routes = [(digits, hops) for digits, hops in routes if hops != rest or digits in within]
        routes += [(own, ())] if own is not None and within else []
        routes.append(((), rest))
    return [(layout.prefix(digits), hops) for digits, hops in routes]


def _own_digits(topology: Topology, node: int) -> tuple[int, ...] | None:
    """What the labels of all hosts below a switch begin with, and of no others; a host's own label;
    None for a switch that has none below."""
    naming, layout = topology.naming, topology.naming.layout
    assert isinstance(naming, FabricNaming)
    below: int | None = node
    while below is not None and below >= topology.servers:
        tier = naming.tier(below)
        below = next(
            (peer for _, peer, _, _ in topology.ports(below) if naming.tier(peer) < tier), None
        )
    if below is None:
        return None
    return layout.label_of(below)[: len(layout.radices) - naming.tier(node)]


def _split(
    topology: Topology, node: int, digits: tuple[int, ...], hops: Hops
) -> Iterator[tuple[int, ...]]:
    """The ranges of labels in which a route of `node` to those that begin with `digits` may be told
    to others.

    A route up, or down to a switch that has all of the range below itself, stays as it is.  Any
    other goes down to come up again, as after failures, and a packet for an edge switch that there
    is not would come back.  So there is a route to each edge switch, or host, that there is.
    """
    naming, radices = topology.naming, topology.naming.layout.radices
    assert isinstance(naming, FabricNaming)
    length = len(digits)
    for hop in hops:
        if length >= len(radices) - (hop.node >= topology.servers):
            continue
        below = naming.tier(hop.node)
        if below < naming.tier(node) and digits[: len(radices) - below] != _own_digits(
            topology, hop.node
        ):
            length = max(length, len(radices) - min(below, 1))
    yield from _longer(topology.naming.layout, digits, length)


def _longer(
    layout: AddressLayout, digits: tuple[int, ...], length: int
) -> Iterator[tuple[int, ...]]:
    """What labels that begin with `digits` begin with, to this length."""
    if len(digits) == length:
        yield digits
        return
    for digit, size in enumerate(layout.sizes(digits)):
        if size:
            yield from _longer(layout, (*digits, digit), length)


def next_hops(topology: Topology, switch: int) -> list[Hops]:
    """For each host, all hops from `switch` on shortest paths to it, in order of port; empty if
    there is no path."""
    edge_of, left = _edges(topology)
    ports = [(port, peer) for port, peer, _, _ in topology.live_ports(switch)]
    own = {peer: (Hop(port, peer),) for port, peer in ports if peer < topology.servers}
    to_edge: dict[int | None, Hops] = {None: ()}
    for edge, hops in left.items():
        nearer = hops.get(switch, 0) - 1
        to_edge[edge] = tuple(Hop(port, peer) for port, peer in ports if hops.get(peer) == nearer)
    return [own.get(host) or to_edge[edge_of[host]] for host in range(topology.servers)]


def paths(topology: Topology, src: int, dst: int) -> list[list[int]]:
    """Every shortest path from node `src` to node `dst`, both included, over links that have not
    failed."""
    return list(shortest.paths(topology.adjacency, src, dst))


@lru_cache(maxsize=4)
def _edges(topology: Topology) -> tuple[list[int | None], dict[int, Mapping[int, int]]]:
    """The edge switch of each host, None if it is cut off; and for each of these, hops to all
    switches."""
    links = topology.links[~topology.failed & (topology.level == 0)]
    edge_of: list[int | None] = [None] * topology.servers
    for host, _, edge, _ in links.tolist():
        edge_of[host] = edge
    switches = {
        node: [peer for peer in peers if peer >= topology.servers]
        for node, peers in topology.adjacency.items()
        if node >= topology.servers
    }
    return edge_of, {
        edge: shortest.distances(switches, edge) for edge in set(edge_of) if edge is not None
    }


def _aggregated(
    layout: AddressLayout, hops_to: Sequence[Hops], digits: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], Hops]]:
    """Routes to the hosts, `hops_to`, whose labels begin with `digits`: one if they all have the
    same next hops."""
    if len(set(hops_to)) == 1:
        if hops_to[0]:
            yield digits, hops_to[0]
        return
    begin = 0
    for digit, size in enumerate(layout.sizes(digits)):
        if size:
            yield from _aggregated(layout, hops_to[begin : begin + size], (*digits, digit))
        begin += size


def _up(topology: Topology, node: int) -> Hops:
    """The live ports of `node` that lead to a higher tier; ValueError if the network is no switch
    fabric."""
    naming = topology.naming
    if not isinstance(naming, FabricNaming):
        raise ValueError(
            f"{topology.spec} is not a switch fabric: its servers forward, by dr for example"
        )
    own = naming.tier(node)
    return tuple(
        Hop(port, peer) for port, peer, _, _ in topology.live_ports(node) if naming.tier(peer) > own
    )
