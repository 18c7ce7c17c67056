"""Equal-cost shortest paths in switch fabrics, tiered or not, as prefix routes of each switch.

Next hops are the neighbours nearer to the destination's edge switch, by breadth-first search over
live links; hosts with a common prefix and the same next hops share a route.  This holds for any
fabric and any failures.  In a fat-tree it gives the up-down paths of TTC, section 2.

Without failures an edge switch has a /32 for each of its hosts and one route up, an aggregation
switch a prefix for each edge switch of its pod and one route up, a core switch a prefix for each
pod.  Edge and aggregation switches also have an unreachable route for their own range: a packet for
an address without a host must not go up again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING

from weft.daemons.core.actions import Hop
from weft.daemons.routing import shortest
from weft.topologies.core.address import EVERYTHING, AddressLayout, FabricNaming, Prefix

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

Hops = tuple[Hop, ...]


def prefix_routes(topology: Topology, node: int) -> list[tuple[Prefix, Hops]]:
    """Return the routing table of `node`; longer prefixes win.

    A host has one route, to its edge switch.  A host out of reach has no route in the tables of
    switches.  A prefix without hops is an unreachable route.
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
    if all(hops_to):  # a default route must not cover hosts out of reach
        routes = _with_default(routes, up, own)
    return [(layout.prefix(digits), hops) for digits, hops in routes]


def _with_default(
    routes: list[tuple[tuple[int, ...], Hops]], up: Hops, own: tuple[int, ...] | None
) -> list[tuple[tuple[int, ...], Hops]]:
    """Return `routes` with a default route for the most common hops up, if there are any.

    The range of labels below the switch, `own`, keeps its routes and is otherwise unreachable.
    """
    counts = Counter(hops for _, hops in routes if set(hops) <= set(up))
    if not counts:
        return routes
    ((default, _),) = counts.most_common(1)
    within = {
        digits
        for digits, _ in routes
        if own is not None and len(own) < len(digits) and digits[: len(own)] == own
    }
    others = [(digits, hops) for digits, hops in routes if hops != default or digits in within]
    if own is not None and within:
        others.append((own, ()))
    return [*others, ((), default)]


def _own_digits(topology: Topology, node: int) -> tuple[int, ...] | None:
    """Return the common first digits of the labels of all hosts below a switch; a host's label.

    None for a switch without hosts below.
    """
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
    """Yield the label prefixes into which a route of `node` to `digits` is split.

    A route up, or down to a switch above the whole range, is not split.  Any other route, as after
    failures, leads down and up again, where a packet for an edge switch that does not exist would
    come back.  It is split into a route to each edge switch, or host, that exists.
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
    """Yield the label prefixes of this length that begin with `digits`."""
    if len(digits) == length:
        yield digits
        return
    for digit, size in enumerate(layout.sizes(digits)):
        if size:
            yield from _longer(layout, (*digits, digit), length)


def next_hops(topology: Topology, switch: int) -> list[Hops]:
    """Return the hops from `switch` on shortest paths to each host, by host and in order of port.

    Hops are empty without a path.
    """
    return _hops_to(topology, switch, range(topology.servers))


def hops_to(topology: Topology, switch: int, host: int) -> Hops:
    """Return the hops from `switch` to `host` alone, see next_hops()."""
    (hops,) = _hops_to(topology, switch, [host])
    return hops


def _hops_to(topology: Topology, switch: int, hosts: Iterable[int]) -> list[Hops]:
    distances, ports = _distances(topology), topology.live_ports(switch)
    own = {peer: (Hop(port, peer),) for port, peer, *_ in ports if peer < topology.servers}

    @cache
    def to_edge(edge: int) -> Hops:
        hops = distances(edge)
        nearer = hops.get(switch, 0) - 1
        return tuple(Hop(port, peer) for port, peer, *_ in ports if hops.get(peer) == nearer)

    def to(host: int) -> Hops:
        # of a host's edge switches, one of each plane, a switch reaches that of its own plane
        return next(filter(None, map(to_edge, topology.adjacency[host])), ())

    return [own.get(host) or to(host) for host in hosts]


def paths(topology: Topology, src: int, dst: int) -> list[list[int]]:
    """Return all live shortest paths from node `src` to node `dst`, both included."""
    return list(shortest.paths(topology.adjacency, src, dst))


@lru_cache(maxsize=4)
def _distances(topology: Topology) -> Callable[[int], Mapping[int, int]]:
    """Return the function from a switch to the hops from it to each other one."""
    switches = {
        node: [peer for peer in peers if peer >= topology.servers]
        for node, peers in topology.adjacency.items()
        if node >= topology.servers
    }
    return cache(partial(shortest.distances, switches))


def _aggregated(
    layout: AddressLayout, hops_to: Sequence[Hops], digits: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], Hops]]:
    """Yield routes to the hosts whose labels begin with `digits`: one if all next hops agree."""
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
    """Return the live ports of `node` to a higher tier; ValueError without a switch fabric."""
    naming = topology.naming
    if not isinstance(naming, FabricNaming):
        raise ValueError(
            f"{topology.spec} is not a switch fabric: its servers forward, by dr for example"
        )
    own = naming.tier(node)
    return tuple(
        Hop(port, peer) for port, peer, _, _ in topology.live_ports(node) if naming.tier(peer) > own
    )
