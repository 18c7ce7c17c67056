"""The forwarding tables of layers as prefix routes.

The layer is the first octet of the destination's address.

FatPaths deploys layers by partitioning the address space (section V-D).  A server's address begins
with 10; in layer l the same server is at 64 + l, so that the tag takes no bytes and every router
needs no more than a longest-prefix match. Layer 63 would be 127, which Linux keeps to itself, so
there are 63 layers, 0 .. 62.  The address with 10 is in no layer and takes any shortest path, as
under ecmp.

A switch has, for each layer, a route to each router with hosts, which is one prefix, and one to
each host of its own.
"""

from __future__ import annotations

from weft.daemons.routing import route_addresses
from weft.topologies.core.address import Prefix

MOST_LAYERS = route_addresses.BELOW_LOOPBACK


def in_layer(address: int, layer: int) -> int:
    """The address in layer `layer`, 0 .. 62, of the server with the address `address`.

    ValueError for any other layer.
    """
    if not 0 <= layer < MOST_LAYERS:
        raise ValueError(f"layered routing: there are layers 0 .. {MOST_LAYERS - 1}, got {layer}")
    return route_addresses.with_octet(address, route_addresses.first_octet(layer))


def tagged(prefix: Prefix, layer: int) -> Prefix:
    """`prefix`, of servers, in layer `layer`."""
    return Prefix(in_layer(prefix.network, layer), prefix.length)
