"""DR, dimensional routing over live links; and static routes that ignore failures.

On BCube its routes are those of BCubeRouting, which correct a digit after the other as DR does, and
those on GQ* correct the digits of its hypercube (daemons/routing/candidates.py).
Static routes are DR's on server-centric networks, shortest paths on fabrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from weft.daemons.control import parameters
from weft.daemons.control.candidate_routes import LiveRoutes
from weft.daemons.core.contract import StateMachine
from weft.daemons.core.node_config import NodeConfig, Options, node_configs
from weft.daemons.core.scheme import RoutedPath, Scheme, arrives_by, for_servers
from weft.daemons.routing import dr
from weft.daemons.routing.candidates import bcube_route, candidates, gqstar_route
from weft.topologies.core.family import IntegerParameter
from weft.topologies.recursive.hypercubes import BcubeNaming, GqstarNaming

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology


def check(topology: Topology, options: Options) -> None:
    """Raise ValueError unless DR can route `topology`."""
    route(topology, 0, 0)


def configure(topology: Topology, options: Options, link_kbps: int) -> dict[int, NodeConfig]:
    """Return configurations with DR's next hop for each prefix."""
    return node_configs(topology, "dr", __name__, options, candidates=candidates)


def machine(config: NodeConfig, incarnation: int) -> StateMachine:
    """Return the state machine that sets DR's routes over live hops."""
    return LiveRoutes(parameters.neighbourhood(config, incarnation), config.candidates)


def path(topology: Topology, options: Options, src: int, dst: int) -> list[RoutedPath]:
    """Return DR's path; none if a link of it is dead, because DR knows no other."""
    return if_alive(topology, route(topology, src, dst))


def route(topology: Topology, src: int, dst: int) -> list[int]:
    """Return the servers of DR's path; ValueError unless DR can route `topology`."""
    if isinstance(topology.naming, BcubeNaming):
        return bcube_route(topology.naming, src, dst)
    if isinstance(topology.naming, GqstarNaming):
        return gqstar_route(topology.naming, src, dst)
    network = for_servers("dr", topology)
    return dr.route(network.rule, network.t, src, dst)


def if_alive(topology: Topology, path: list[int]) -> list[RoutedPath]:
    """Return `path` if all its links are live; otherwise none."""
    live = topology.adjacency
    return [RoutedPath(tuple(path))] if all(b in live[a] for a, b in pairwise(path)) else []


def without_daemons(
    topology: Topology, options: Options, link_kbps: int
) -> Mapping[int, NodeConfig]:
    """Return no configurations: no daemon runs."""
    return {}


def static_path(topology: Topology, options: Options, src: int, dst: int) -> list[RoutedPath]:
    """Return DR's path on a server-centric network, or the shortest paths of an intact fabric.

    A switch of a fabric avoids its own dead links, and knows of no others.
    """
    if topology.server_centric:
        return path(topology, options, src, dst)
    from weft.daemons.routing import path_shares, updown

    intact = replace(topology, failed=topology.failed & False)

    def choose(switch: int) -> path_shares.Chosen:
        live = {port for port, *_ in topology.live_ports(switch)}
        return path_shares.evenly(
            [hop for hop in updown.hops_to(intact, switch, dst) if hop.port in live]
        )

    return path_shares.paths(topology, src, dst, choose)


IPV6 = IntegerParameter.flag(
    "nodes have IPv6 beside IPv4; switches hash addresses and flow label, and no ports"
)
SCHEMES = (
    Scheme(
        name="dr",
        summary="dimensional routing (DCellRouting, TOR, BCubeRouting, GQ*) over live links",
        source="CCRDN, definition 4.1",
        parameters=parameters.HELLO,
        check=check,
        configure=configure,
        machine=machine,
        path=path,
        connects=arrives_by(path),
        fixed_path=True,
        loop_free=True,
    ),
    Scheme(
        name="static",
        summary="routes from the topology alone, without daemons: failures go unnoticed",
        source="CCRDN, definition 4.1; RFC 2992",
        parameters={"ipv6": IPV6},
        configure=without_daemons,
        path=static_path,
        connects=arrives_by(static_path),
    ),
)
