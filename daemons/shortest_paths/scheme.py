"""Shortest paths over live links, on every network; on fabrics also with multipath routes.

By link state: the adaptive baseline of the other schemes.  A route holds all neighbours on
shortest paths.  Only routes that change are set.  When a neighbour is lost, routes go on with
their other neighbours at once.  Their distance is as before, so this cannot make a loop, even if
other routers do not know of the loss yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.daemons.control import parameters
from weft.daemons.control.hello import Neighbourhood
from weft.daemons.control.link_state import Database
from weft.daemons.control.link_state_routing import Flooding
from weft.daemons.core.actions import Action, Hop, SetRoute
from weft.daemons.core.contract import StateMachine
from weft.daemons.core.node_config import NodeConfig, Options, node_configs, own_hosts
from weft.daemons.core.scheme import (
    ECN,
    FLOW_HASH,
    KERNEL,
    RoutedPath,
    Scheme,
    Selection,
    SelectionRule,
    for_switches,
)
from weft.daemons.routing import shortest
from weft.topologies.core.address import Prefix
from weft.topologies.core.family import IntegerParameter

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology


# by destination, the neighbours on shortest paths to it
NextNodes = Mapping[int, Sequence[int]]


class Bfs(Flooding):
    """State machine of shortest paths for the node of `neighbourhood` and `database`.

    destinations: prefixes, each with the node that it leads to.
    local: prefixes of this node's own hosts, each with its hop; the hop is alive while its port has
        a carrier.
    """

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        database: Database,
        destinations: Sequence[tuple[Prefix, int]],
        local: Sequence[tuple[Prefix, tuple[Hop, ...]]] = (),
        *,
        hold_s: float,
    ) -> None:
        super().__init__(neighbourhood, database, hold_s=hold_s)
        self._destinations = [(prefix, node) for prefix, node in destinations if node != self._node]
        self._local = dict(local)
        self._routes: dict[Prefix, tuple[Hop, ...]] = {}  # routes set so far

    def start(self, now: float) -> Sequence[Action]:
        actions: list[Action] = [SetRoute(prefix, hops) for prefix, hops in self._local.items()]
        return [*actions, *super().start(now)]

    def link_changed(self, port: int, up: bool, now: float) -> Sequence[Action]:
        own = [prefix for prefix, hops in self._local.items() if hops[0].port == port]
        actions: list[Action] = [
            SetRoute(prefix, self._local[prefix] if up else ()) for prefix in own
        ]
        return [*actions, *super().link_changed(port, up, now)]

    def converged(self) -> bool:
        return super().converged() and all(
            self._routes.get(prefix) for prefix, _ in self._destinations
        )

    def status(self) -> dict[str, Any]:
        lost = [str(prefix) for prefix, _ in self._destinations if not self._routes.get(prefix)]
        routes = len(self._local) + len(self._destinations) - len(lost)
        return {**super().status(), "routes": routes, "routes_lost": lost}

    def _leave(self, hop: Hop) -> list[Action]:
        actions: list[Action] = []
        for prefix, hops in self._routes.items():
            if hop in hops and len(hops) > 1:
                self._routes[prefix] = tuple(other for other in hops if other != hop)
                actions.append(SetRoute(prefix, self._routes[prefix]))
        return actions

    def _routes_now(self) -> list[Action]:
        actions: list[Action] = []
        graph = self._database.graph()
        next_nodes = shortest.next_hops(graph, self._node)
        for prefix, hops in self._live_routes(graph, next_nodes):
            if self._routes.get(prefix, ()) != hops:
                self._routes[prefix] = hops
                actions.append(SetRoute(prefix, hops))
        return actions

    def _live_routes(
        self, graph: shortest.Adjacency, next_nodes: NextNodes
    ) -> Iterator[tuple[Prefix, tuple[Hop, ...]]]:
        """Yield each destination's prefix and its hops over live links."""
        up = self._up()
        hops = {
            node: tuple(hop for neighbour in neighbours for hop in up.get(neighbour, ()))
            for node, neighbours in next_nodes.items()
        }
        for prefix, node in self._destinations:
            yield prefix, hops.get(node, ())

    def _up(self) -> dict[int, list[Hop]]:
        """Return the hops to each neighbour that is up."""
        hops: dict[int, list[Hop]] = {}
        for neighbour in self._neighbourhood.neighbours():
            if neighbour.up:
                hops.setdefault(neighbour.hop.node, []).append(neighbour.hop)
        return hops


PARAMETERS = parameters.HELLO | parameters.LINK_STATE
SEEDS = IntegerParameter.word(
    "seeds of the switches' hashes; the same one polarises flows", ("own", "same")
)


def configure(topology: Topology, options: Options, link_kbps: int) -> dict[int, NodeConfig]:
    """Return configurations with the prefix of every router and, for a switch, its hosts."""
    return node_configs(
        topology, "bfs", __name__, options, candidates=own_hosts, all_destinations=True
    )


def machine(config: NodeConfig, incarnation: int) -> StateMachine:
    """Return the state machine of shortest paths."""
    return Bfs(
        parameters.neighbourhood(config, incarnation),
        parameters.database(config, incarnation),
        config.destinations,
        config.candidates,
        hold_s=config.options["hold_ms"] / 1000,
    )


def path(topology: Topology, options: Options, src: int, dst: int) -> list[RoutedPath]:
    """Return one shortest path; none if `dst` is unreachable."""
    nodes = shortest.route(topology.adjacency, src, dst)
    return [RoutedPath(tuple(nodes))] if nodes else []


def check_fabric(topology: Topology, options: Options) -> None:
    """Raise ValueError unless `topology` is a switch fabric."""
    for_switches("ecmp", topology, has_planes=True)


def equal_paths(topology: Topology, options: Options, src: int, dst: int) -> list[RoutedPath]:
    """Return all shortest paths of a switch fabric, each with its share of flows by hash."""
    from weft.daemons.routing import path_shares

    paths = path_shares.polarised if options["seeds"] else path_shares.shortest
    return paths(topology, src, dst)


def rule(options: Options) -> SelectionRule:
    """Return the rule of Linux multipath routes, or the data plane's choice by flow hash.

    The kernel's multipath routes cannot mark packets, and before Linux 6.11 take no seeds.
    """
    if not options["ecn"] and not options["seeds"]:
        return SelectionRule(KERNEL)
    return SelectionRule(FLOW_HASH, {"ecn": options["ecn"]}, common_seed=bool(options["seeds"]))


SCHEMES = (
    Scheme(
        name="bfs",
        summary="shortest paths over live links, known by link state",
        source="breadth-first search, the baseline of the other schemes",
        parameters=PARAMETERS,
        configure=configure,
        machine=machine,
        path=path,
        fixed_path=True,
    ),
    Scheme(
        name="ecmp",
        summary="all equal-cost shortest paths of a switch fabric over live links; a hash chooses "
        "each flow's path",
        source="RFC 2992",
        parameters={"ecn": ECN, "seeds": SEEDS, **PARAMETERS},
        check=check_fabric,
        configure=configure,
        machine=machine,
        selection=Selection(parameters={"ecn": ECN, "seeds": SEEDS}, rule=rule),
        path=equal_paths,
    ),
)
