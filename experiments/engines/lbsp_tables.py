"""LBSP's tables on switches that have no daemons: what each daemon would set, written by one
process that knows all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.daemons.core import registry
from weft.daemons.lbsp import routing as lbsp
from weft.daemons.lbsp.routing import LbspShape, Uplink
from weft.topologies.core.topology import Topology

if TYPE_CHECKING:
    from weft.testbed.data_plane.data_plane import DataPlane
    from weft.testbed.network.network import RunningNetwork


def shape_of(topology: Topology, scheme: str = "lbsp") -> LbspShape:
    """The fat-tree of LBSP, with the link groups of `scheme`, two if it has none; ValueError if
    LBSP cannot part the paths of `topology`."""
    return lbsp.shape_of(topology, registry.rule(scheme)["groups"] or 2)


def lbsp_link(topology: Topology, link: int) -> Uplink:
    """`link` of the topology as LBSP names it."""
    a, _, b, _ = topology.links[link].tolist()
    return shape_of(topology).link(a, b)


def set_tables(
    network: RunningNetwork,
    plane: DataPlane,
    scheme: str,
    dead: Sequence[Uplink],
    degraded: Sequence[Uplink],
) -> None:
    """Give every switch the table that its daemon would set under `scheme`."""
    topology = network.topology
    shape = shape_of(topology, scheme)
    for node in plane.switches:
        table = {
            p: list(route.ports)
            for p, route in lbsp.table(shape, shape.place(node), dead, degraded).items()
        }
        for port, peer, _, _ in topology.ports(node):
            if peer < topology.servers:
                table[topology.naming.layout.prefix(topology.naming.layout.label_of(peer))] = [port]
        indexes = {
            prefix: [network.ifindex(node, port) for port in ports]
            for prefix, ports in table.items()
        }
        plane.groups[node].replace(indexes)
