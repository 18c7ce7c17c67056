"""Detours in a full mesh: around a dead link, packets go by one other router.

A router knows only which of its neighbours are up.  For the hosts of each other router it prefers
the direct link, then the other routers in the order of their numbers.  With several dead links
packets may loop until their TTL expires.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from weft.daemons.control import parameters
from weft.daemons.control.candidate_routes import LiveRoutes
from weft.daemons.control.hello import HelloOutcome, Neighbourhood
from weft.daemons.core.actions import Action, Hop, SetRoute
from weft.daemons.core.contract import StateMachine
from weft.daemons.core.node_config import (
    NodeConfig,
    Options,
    Routes,
    node_configs,
    own_hosts,
    router_prefixes,
)
from weft.daemons.core.scheme import RoutedPath, Scheme, arrives_by
from weft.topologies.core.address import Prefix

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology


def candidates(topology: Topology, router: int) -> Routes:
    """Return the routes to own hosts, and the hops to each other router in order of preference."""
    ports = {peer: port for port, peer, *_ in topology.ports(router)}
    rows = list(own_hosts(topology, router))
    for prefix, peer in router_prefixes(topology):
        if peer != router:
            others = sorted(set(ports) - {peer} - set(range(topology.servers)))
            rows.append((prefix, tuple(Hop(ports[node], node) for node in (peer, *others))))
    return tuple(rows)


class Detour(LiveRoutes):
    """State machine of one router."""

    def __init__(self, neighbourhood: Neighbourhood, routes: Routes) -> None:
        hosts = [(prefix, hops) for prefix, hops in routes if len(hops) == 1]
        super().__init__(neighbourhood, hosts)
        self._ordered = {prefix: hops for prefix, hops in routes if len(hops) > 1}
        self._current: dict[Prefix, tuple[Hop, ...]] = {}

    def converged(self) -> bool:
        return super().converged() and all(
            self._current.get(prefix) == hops[:1] for prefix, hops in self._ordered.items()
        )

    def _follow(self, events: Iterable[HelloOutcome], now: float) -> list[Action]:
        """Add the changes of routes that follow from the links."""
        actions = super()._follow(events, now)
        changes: list[Action] = []
        for prefix, hops in self._ordered.items():
            first = tuple(hop for hop in hops if self.lives(hop))[:1]
            if self._current.get(prefix) != first:
                self._current[prefix] = first
                changes.append(SetRoute(prefix, first))
        return [*changes, *actions]


def check(topology: Topology, options: Options) -> None:
    """Raise ValueError unless `topology` is a full mesh."""
    if topology.family != "complete":
        raise ValueError(f"scheme detour needs a complete graph, not {topology.spec}")


def configure(topology: Topology, options: Options, link_kbps: int) -> dict[int, NodeConfig]:
    """Return the configuration of each router."""
    return node_configs(topology, "detour", __name__, options, candidates=candidates)


def machine(config: NodeConfig, incarnation: int) -> StateMachine:
    """Return the state machine of one router."""
    return Detour(parameters.neighbourhood(config, incarnation), config.candidates)


def path(topology: Topology, options: Options, src: int, dst: int) -> list[RoutedPath]:
    """Return the path of a packet between hosts; none if a second dead link is in its way."""
    (first,), (last,) = topology.adjacency[src], topology.adjacency[dst]
    peers = topology.adjacency[first]
    if first == last:
        return [RoutedPath((src, first, dst))]
    if last in peers:
        return [RoutedPath((src, first, last, dst))]
    others = sorted(node for node in peers if node >= topology.servers)
    if not others or last not in topology.adjacency[others[0]]:
        return []
    return [RoutedPath((src, first, others[0], last, dst))]


SCHEMES = (
    Scheme(
        name="detour",
        summary="the direct link of a full mesh, and around a dead one by another router",
        source="the lab own_scheme",
        parameters=parameters.HELLO,
        check=check,
        configure=configure,
        machine=machine,
        path=path,
        connects=arrives_by(path),
        fixed_path=True,
    ),
)
