"""Where a packet goes by the forwarding tables as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.daemons.core.actions import Flow, Hop
from weft.daemons.routing import first_octets
from weft.daemons.simulator.node import Node
from weft.daemons.simulator.wires import Wires

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

ICMP = 1  # the protocol of packets that walk


@dataclass(frozen=True)
class Walk:
    """Where a packet went: the nodes that it visited, crossbars left out, and why it went no further; "" if it
    arrived."""

    path: tuple[int, ...]
    lost: str


def pings(topology: Topology, src: int, dst: int) -> Flow:
    """The flow of the pings from server `src` to server `dst`."""
    address = topology.naming.address
    return Flow(address(src), address(dst), ICMP, 0)


def walk(
    topology: Topology,
    wires: Wires,
    nodes: Mapping[int, Node],
    src: int,
    dst: int,
    choice: int,
    *,
    first_octet: int | None = None,
    placed: Callable[[int], Hop | None] = lambda _: None,
) -> Walk:
    """Where a packet from server `src` to server `dst` goes; of several hops it takes number `choice`, modulo how many
    there are.

    first_octet: what its destination begins with when it leaves a host; None: as the server's address does.
    placed: the first switch -> the hop that it takes there whatever the route says, None for any.
    """
    name = topology.naming.name
    flow = pings(topology, src, dst)
    address = flow.destination if first_octet is None else first_octets.with_octet(flow.destination, first_octet)

    def hops_at(node: int) -> tuple[Hop, ...]:
        if node in nodes:
            return nodes[node].fib.lookup(address)
        port, peer, _, _ = wires.ports(node)[0]  # a host has one way out
        return (Hop(port, peer),)

    if src in nodes and src != dst and nodes[src].rewrites():
        if not hops_at(src):
            return Walk((src,), f"no route at {name(src)}")
        address = nodes[src].leaving(address)
    path = [src]
    been = {(src, address)}
    while path[-1] != dst:
        node = path[-1]
        if node in nodes:
            address = nodes[node].passing(address, flow)
        hops = hops_at(node)
        if not hops:
            return Walk(tuple(path), f"no route at {name(node)}")
        hop = (placed(node) if len(path) == 2 else None) or hops[choice % len(hops)]
        if hop.node not in wires.hear(node, hop.port):
            return Walk(tuple(path), f"link dead from {name(node)} to {name(hop.node)}")
        path.append(hop.node)
        if hop.node in nodes and not nodes[hop.node].powered:
            return Walk(tuple(path), f"{name(hop.node)} has no power")
        if (hop.node, address) in been:
            return Walk(tuple(path), f"loop at {name(hop.node)}")
        been.add((hop.node, address))
    return Walk(tuple(path), "")
