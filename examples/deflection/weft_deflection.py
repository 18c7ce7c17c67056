"""Hot-potato deflection on DCell: packets avoid a dead next hop at once.

A server knows only which of its neighbours are up.  For each prefix it prefers DR's next hop, then
the neighbours whose DR route avoids that hop, those with short routes first; a neighbour whose
route leads back is never used.  With two dead hops packets may loop until their TTL expires; a dead
link to a crossbar counts as two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.daemons.control import parameters
from weft.daemons.control.candidate_routes import LiveRoutes
from weft.daemons.core.actions import Hop
from weft.daemons.core.contract import StateMachine
from weft.daemons.core.node_config import NodeConfig, Options, Routes, node_configs
from weft.daemons.core.scheme import RoutedPath, Scheme, arrives_by, for_servers
from weft.daemons.routing import dr

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology


def choices(topology: Topology, server: int) -> Routes:
    """Return the neighbours of `server` for each prefix of DR, in order of preference."""
    network = for_servers("deflection", topology)
    neighbours = topology.neighbours(server)
    hops = [Hop(port, node) for port, nodes in neighbours.items() for node in nodes]
    rows = []
    for prefix, first in dr.prefix_routes(network, server):
        target = network.layout.number_of(network.layout.digits(prefix.network))
        ranks = []
        for hop in hops:
            route = dr.route(network.rule, network.t, hop.node, target)
            if hop != first and server not in route:
                ranks.append((first.node in route, len(route), hop))
        rows.append((prefix, (first, *(hop for *_, hop in sorted(ranks)))))
    return tuple(rows)


def check(topology: Topology, options: Options) -> None:
    """Raise ValueError unless `topology` is a DCell."""
    for_servers("deflection", topology)
    if topology.family != "dcell":
        raise ValueError(f"scheme deflection needs a dcell, not {topology.spec}")


def configure(topology: Topology, options: Options, link_kbps: int) -> dict[int, NodeConfig]:
    """Return the configuration of each server: its neighbours in order of preference."""
    return node_configs(topology, "deflection", __name__, options, candidates=choices)


def machine(config: NodeConfig, incarnation: int) -> StateMachine:
    """Return the state machine of one server, which sets the first live hop of each route."""
    neighbourhood = parameters.neighbourhood(config, incarnation)
    return LiveRoutes(neighbourhood, config.candidates, first_only=True)


def path(topology: Topology, options: Options, src: int, dst: int) -> list[RoutedPath]:
    """Return the path of a packet; none if it loops or meets a server without a live hop."""
    address = topology.naming.address(dst)
    visited = [src]
    while visited[-1] != dst:
        server = visited[-1]
        hops = next(row for prefix, row in choices(topology, server) if prefix.holds(address))
        live = (hop.node for hop in hops if hop.node in topology.adjacency[server])
        neighbour = next(live, None)
        if neighbour is None or neighbour in visited:
            return []
        visited.append(neighbour)
    return [RoutedPath(tuple(visited))]


SCHEMES = (
    Scheme(
        name="deflection",
        summary="DR, and from a dead next hop at once to another live neighbour",
        source="hot-potato routing: Baran, IEEE Trans. Commun. Syst. 1964",
        parameters=parameters.HELLO,
        check=check,
        configure=configure,
        machine=machine,
        path=path,
        connects=arrives_by(path),
        fixed_path=True,
    ),
)
