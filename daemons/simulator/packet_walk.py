"""Path of a packet by the present forwarding tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from weft.daemons.core.actions import FiveTuple, Hop
from weft.daemons.routing import route_addresses
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


class SimulatedNetwork(NamedTuple):
    """A network as it is wired, its links, and its routers."""

    topology: Topology
    wires: Wires
    nodes: dict[int, Node]

    def no_route(self, node: int) -> str:
        """Return the cause of a loss at `node`."""
        return f"no route at {self.topology.naming.name(node)}"

    def forward(
        self, node: int, address: int, flow: FiveTuple, choice: int
    ) -> tuple[int, Hop | None]:
        """Return address and next hop of a packet of `flow` that leaves `node`."""
        if node not in self.nodes:
            port, peer, _, _ = self.wires.ports(node)[0]  # a host has one port
            return address, Hop(port, peer)
        address = self.nodes[node].passing(address, flow)
        hops = self.nodes[node].fib.lookup(address)
        return address, hops[choice % len(hops)] if hops else None

    def obstacle(self, node: int, hop: Hop | None) -> PacketWalk | None:
        """Return the end of a walk that cannot go on by `hop`; None if it can."""
        name = self.topology.naming.name
        if not hop:
            return PacketWalk((node,), self.no_route(node))
        if not self.wires.leads(node, hop.port, hop.node):
            return PacketWalk((node,), f"link dead from {name(node)} to {name(hop.node)}")
        if hop.node in self.nodes and not self.nodes[hop.node].powered:
            return PacketWalk((node, hop.node), f"{name(hop.node)} has no power")
        return None


def walk(
    network: SimulatedNetwork,
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
        network: the network.
        src: source server.
        dst: destination server.
        choice: number of the hop to take, modulo their number.
        first_octet: first octet of the destination address as it leaves a host; None: unchanged.
        placed: (first switch) -> hop that overrides the route; None: no override.
        known: cache of paths to `dst` by node and address, valid until a change.  Only for schemes
            that route by address alone.
    """
    flow = pings(network.topology, src, dst)
    address = flow.destination
    if first_octet is not None:
        address = route_addresses.with_octet(address, first_octet)
    if src != dst and src in network.nodes:
        if network.nodes[src].refuses(address):
            return PacketWalk((src,), network.no_route(src))
        address = network.nodes[src].leaving(address)

    def next_hop(path: list[int], address: int) -> tuple[int, Hop | None]:
        address, hop = network.forward(path[-1], address, flow, choice)
        override = placed(path[-1]) if hop and placed and len(path) == 2 else None
        return address, override or hop

    return _walk(network, [src], dst, address, next_hop, known)


def _walk(
    network: SimulatedNetwork,
    path: list[int],
    dst: int,
    address: int,
    next_hop: Callable[[list[int], int], tuple[int, Hop | None]],
    known: dict[tuple[int, int], PacketWalk] | None,
) -> PacketWalk:
    """Return the walk that goes on from `path` by next_hop(path, address) -> address, hop."""
    visited = {(path[-1], address): 0}
    rest = None
    while path[-1] != dst and not rest:
        if known and (rest := known.get((path[-1], address))):
            break
        address, hop = next_hop(path, address)
        rest = network.obstacle(path[-1], hop)
        if rest or not hop:
            break
        path.append(hop.node)
        if (hop.node, address) in visited:
            return PacketWalk(tuple(path), f"loop at {network.topology.naming.name(hop.node)}")
        visited[hop.node, address] = len(path) - 1
    return _remembered(_joined(path, rest), visited, known)


def _joined(path: list[int], rest: PacketWalk | None) -> PacketWalk:
    """Return the walk over `path` and on by `rest`; without a rest it arrived."""
    return PacketWalk((*path, *rest.path[1:]), rest.lost) if rest else PacketWalk(tuple(path), "")


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
