"""The forwarding tables of layers as prefix routes, the layer being the first octet of the destination's address.

FatPaths deploys layers by partitioning the address space (section V-D).  A server's address begins with 10; in layer l
the same server is at 64 + l, so that the tag takes no bytes and every router needs no more than a longest-prefix match.
Layer 63 would be 127, which Linux keeps to itself, so there are 63 layers, 0 .. 62.  The address with 10 goes by layer
0.

A switch has, for each layer, a route to each router with hosts, which is one prefix, and one to each host of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from daemons.core.actions import Hop
from daemons.core.node_config import Routes, own_hosts, router_prefixes
from daemons.fatpaths.layers import routes
from topologies.core.address import Prefix

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from topologies.core.topology import Topology

FIRST_OCTET, MOST_LAYERS = 64, 63
OCTET_SHIFT = 24
REST = (1 << OCTET_SHIFT) - 1


def in_layer(address: int, layer: int) -> int:
    """The address in layer `layer`, 0 .. 62, of the server with the address `address`; ValueError for any other
    layer."""
    if not 0 <= layer < MOST_LAYERS:
        raise ValueError(f"layered routing: there are layers 0 .. {MOST_LAYERS - 1}, got {layer}")
    return FIRST_OCTET + layer << OCTET_SHIFT | address & REST


def tagged(prefix: Prefix, layer: int) -> Prefix:
    """`prefix`, of servers, in layer `layer`."""
    return Prefix(in_layer(prefix.network, layer), prefix.length)


def layer_routes(tables: NDArray[np.int32]) -> Callable[[Topology, int], Routes]:
    """Function (topology, switch) -> its routes by `tables`, see layers.py: those of addresses with 10, then those of
    layer 0, 1, ...; in each, its own hosts first."""

    def of_switch(topology: Topology, node: int) -> Routes:
        own = own_hosts(topology, node)
        others = [(prefix, switch) for prefix, switch in router_prefixes(topology) if switch != node]
        found = list[tuple[Prefix, tuple[Hop, ...]]]()
        for layer in range(len(tables)):
            ports = routes(topology, tables[layer], node)
            peer_at = {port: peer for port, peer, _, _ in topology.live_ports(node)}
            within: Sequence[tuple[Prefix, tuple[Hop, ...]]] = [
                *own,
                *((prefix, (Hop(ports[to], peer_at[ports[to]]),)) for prefix, to in others),
            ]
            found += within if layer == 0 else []
            found += [(tagged(prefix, layer), hops) for prefix, hops in within]
        return tuple(found)

    return of_switch
