"""Path of a packet by the present forwarding tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from weft.daemons.core.actions import FiveTuple, Hop
from weft.daemons.routing import first_octets
from weft.daemons.simulator.node import Node
from weft.daemons.simulator.wires import Wires

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

ICMP = 1  # IP protocol number


class PacketWalk(NamedTuple):
    """Nodes that a packet visited, without crossbars, and why it was lost; "" if it arrived."""

    path: tuple[int, ...]
    lost: str


@lru_cache(maxsize=1 << 14)
def pings(topology: Topology, src: int, dst: int) -> FiveTuple:
    """Return the flow of pings from server `src` to server `dst`."""
    address = topology.naming.address
    return FiveTuple(address(src), address(dst), ICMP, 0)


def walk(
    topology: Topology,
    wires: Wires,
    nodes: Mapping[int, Node],
    src: int,
    dst: int,
    choice: int,
    *,
    first_octet: int | None = None,
    placed: Callable[[int], Hop | None] | None = None,
    known: dict[tuple[int, int], PacketWalk] | None = None,
) -> PacketWalk:
    """Return the path of a packet from server `src` to server `dst`.

    Args:
        topology: the network as it is wired.
        wires: its links.
        nodes: its routers.
        src: source server.
        dst: destination server.
        choice: number of the hop to take, modulo their number.
        first_octet: first octet of the destination address as it leaves a host; None: unchanged.
        placed: (first switch) -> hop that overrides the route; None: no override.
        known: cache of paths to `dst` by node and address, valid until a change.  Only for schemes
            that route by address alone.
    """
    name = topology.naming.name
    flow = pings(topology, src, dst)
    address = (
        flow.destination
        if first_octet is None
        else first_octets.with_octet(flow.destination, first_octet)
    )
    if src in nodes and src != dst and nodes[src].rewrites():
        if not nodes[src].fib.lookup(address):
            return PacketWalk((src,), f"no route at {name(src)}")
        address = nodes[src].leaving(address)
    path = [src]
    visited = {(src, address): 0}
    rest = None
    while path[-1] != dst and not rest:
        node = path[-1]
        if known and (rest := known.get((node, address))):
            break
        if node in nodes:
            address = nodes[node].passing(address, flow)
        hops = _hops(wires, nodes, node, address)
        hop = (placed(node) if placed and len(path) == 2 else None) or (
            hops[choice % len(hops)] if hops else None
        )
        if not hops or not hop:
            rest = PacketWalk((node,), f"no route at {name(node)}")
        elif not wires.leads(node, hop.port, hop.node):
            rest = PacketWalk((node,), f"link dead from {name(node)} to {name(hop.node)}")
        else:
            path.append(hop.node)
            if hop.node in nodes and not nodes[hop.node].powered:
                rest = PacketWalk((hop.node,), f"{name(hop.node)} has no power")
            elif (hop.node, address) in visited:
                return PacketWalk(tuple(path), f"loop at {name(hop.node)}")
            visited[hop.node, address] = len(path) - 1
    return _remembered(
        PacketWalk((*path, *rest.path[1:]), rest.lost) if rest else PacketWalk(tuple(path), ""),
        visited,
        known,
    )


def _remembered(
    packet_walk: PacketWalk,
    visited: Mapping[tuple[int, int], int],
    known: dict[tuple[int, int], PacketWalk] | None,
) -> PacketWalk:
    """Return `packet_walk` after adding its remainder from each visited place to `known`."""
    if known is not None:
        path, lost = packet_walk
        known |= {place: PacketWalk(path[index:], lost) for place, index in visited.items()}
    return packet_walk


def _hops(wires: Wires, nodes: Mapping[int, Node], node: int, address: int) -> tuple[Hop, ...]:
    if node in nodes:
        return nodes[node].fib.lookup(address)
    port, peer, _, _ = wires.ports(node)[0]  # a host has one port
    return (Hop(port, peer),)
