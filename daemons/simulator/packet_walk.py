"""Where a packet goes by the forwarding tables as they are."""

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

ICMP = 1  # the protocol of packets that walk


class PacketWalk(NamedTuple):
    """Where a packet went: the nodes that it visited, crossbars left out, and why it went no
    further; "" if it arrived."""

    path: tuple[int, ...]
    lost: str


@lru_cache(maxsize=1 << 14)
def pings(topology: Topology, src: int, dst: int) -> FiveTuple:
    """The flow of the pings from server `src` to server `dst`."""
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
    """Where a packet from server `src` to server `dst` goes; of several hops it takes number
    `choice`, modulo how many there are.

    first_octet: what its destination begins with when it leaves a host; None: as the server's
        address does.
    placed: the first switch -> the hop that it takes there whatever the route says, None for any.
    known: (node, address) -> where packets to `dst` with this address go from there, as long as
        nothing has changed, for schemes that tell packets to one server apart by nothing else.
        What this one finds is added.
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
    path, been, rest = [src], {(src, address): 0}, None
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
            elif (hop.node, address) in been:
                return PacketWalk(tuple(path), f"loop at {name(hop.node)}")
            been[hop.node, address] = len(path) - 1
    return _remembered(
        PacketWalk((*path, *rest.path[1:]), rest.lost) if rest else PacketWalk(tuple(path), ""),
        been,
        known,
    )


def _remembered(
    found: PacketWalk,
    been: Mapping[tuple[int, int], int],
    known: dict[tuple[int, int], PacketWalk] | None,
) -> PacketWalk:
    """`found`, and its rest from each place on is `known` from now on."""
    if known is not None:
        known |= {place: PacketWalk(found.path[at:], found.lost) for place, at in been.items()}
    return found


def _hops(wires: Wires, nodes: Mapping[int, Node], node: int, address: int) -> tuple[Hop, ...]:
    if node in nodes:
        return nodes[node].fib.lookup(address)
    port, peer, _, _ = wires.ports(node)[0]  # a host has one way out
    return (Hop(port, peer),)
