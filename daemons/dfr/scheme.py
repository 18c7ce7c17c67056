"""DFR, fault-tolerant routing: link state in a scope, local reroutes beyond (CCRDN 4.2.1).

Every server floods the state of its links within its X(b), the links that leave it among them
(DCellBroadcast).  It knows of no others.

Forwarding follows installed state, with the outcome of a decision per packet.  The next hop depends
on the packet's destination, its state (routing.py) and the link state of the X(b), which
seldom changes.  For every state, and every prefix of destinations with a common decision, the
daemon calls onward() and sets

    a route               if the packet goes on in its state
    a rewrite as well     if it is rerouted, or has reached its proxy: the address of its new state
    an unreachable route  if it is dropped

Where any proxy link may be taken, our server draws one for all packets, not one for each.  While
servers have different link state, the TTL bounds a packet's life.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from weft.daemons.control import parameters
from weft.daemons.control.hello import Neighbourhood
from weft.daemons.control.link_state import Database
from weft.daemons.control.link_state_routing import Flooding
from weft.daemons.core.actions import Action, Hop, SetPrefixRewrite, SetRoute
from weft.daemons.core.contract import PrefixRewrite, StateMachine
from weft.daemons.core.node_config import NodeConfig, Options, node_configs
from weft.daemons.core.scheme import RoutedPath, Scheme, arrives_by, for_servers
from weft.daemons.dfr import routing
from weft.daemons.dfr.routing import DROP, NO_SUBNETWORK, Dfr, HopState, View
from weft.daemons.routing import dr, route_addresses, shortest
from weft.daemons.routing.route_addresses import first_octet
from weft.daemons.routing.shortest import dead_channels
from weft.topologies.core.address import SERVER_BLOCK, Prefix
from weft.topologies.core.family import IntegerParameter
from weft.topologies.recursive.ccrdn import Ccrdn

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology


# our own packets, before their address carries their state
OWN_PACKETS = Prefix(SERVER_BLOCK, 8)


class DfrRouting(Flooding):
    """State machine of DFR for one server; the scope of `database` is its X(settings.b)."""

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        database: Database,
        network: Ccrdn,
        *,
        settings: Dfr,
        hold_s: float,
    ) -> None:
        super().__init__(neighbourhood, database, hold_s=hold_s)
        self._network = network
        self._settings = settings
        self._size = network.t[settings.b]
        self._first = self._node - self._node % self._size
        self._states = routing.states(network, settings)
        self._numbers = routing.numbers(network, settings)
        self._prefixes = prefixes(network, self._node, settings.b)
        self._routes: dict[Prefix, tuple[Hop, ...]] = {}  # routes set so far
        self._octets: dict[Prefix, int] = {}  # rewrites set so far

    def converged(self) -> bool:
        return super().converged() and not self._rerouted() and not self._refused()

    def status(self) -> dict[str, Any]:
        lost = self._refused()
        return {
            **super().status(),
            "routes": len(self._routes) - len(lost),
            "routes_lost": [str(prefix) for prefix in lost],
            "rerouted": [str(prefix) for prefix in self._rerouted()],
        }

    def _refused(self) -> list[Prefix]:
        return [prefix for prefix, hops in self._routes.items() if not hops]

    def _rerouted(self) -> list[Prefix]:
        """Return the prefixes whose packets are rerouted here on leaving their source."""
        direct = route_addresses.first_octet(0)
        return [prefix for prefix in self._octets if prefix.network >> 24 == direct]

    def _routes_now(self) -> list[Action]:
        routes, octets = self._decide()
        actions: list[Action] = []
        for prefix, hops in routes.items():
            # a route of the previous daemon stays until this one knows a hop
            if self._routes.get(prefix, ()) != hops:
                actions.append(SetRoute(prefix, hops))
        changed = [
            prefix
            for prefix in {**self._octets, **octets}
            if self._octets.get(prefix) != octets.get(prefix)
        ]
        actions += [SetPrefixRewrite(prefix, octets.get(prefix)) for prefix in changed]
        self._routes, self._octets = routes, octets
        return actions

    def _decide(self) -> tuple[dict[Prefix, tuple[Hop, ...]], dict[Prefix, int]]:
        """Return the hops of every prefix, and the new first octet of each rewritten prefix."""
        up = {neighbour.hop for neighbour in self._neighbourhood.neighbours() if neighbour.up}
        view = self._view(self._down(up))
        routes: dict[Prefix, tuple[Hop, ...]] = {OWN_PACKETS: tuple(sorted(up))[:1]}
        octets: dict[Prefix, int] = {}
        for prefix, state, dst in self._classes():
            if dst is None:
                octets[prefix] = self._octet(state._replace(subnetwork=NO_SUBNETWORK))
                continue
            hop, next_state = self._decision(view, state, dst)
            routes[prefix] = (hop,) if hop in up else ()
            if hop and next_state != state:
                octets[prefix] = self._octet(next_state)
        return routes, octets

    def _view(self, down: bytearray) -> View:
        """Return the shortest paths from this server around the dead channels `down`."""
        network, distance, parent = self._network, [0] * self._size, [0] * self._size
        view = View(network.rule, network.t, self._settings, self._node, down, distance, parent)
        routing.look(view, [0] * self._size)
        return view

    def _decision(self, view: View, state: HopState, dst: int) -> tuple[Hop | None, HopState]:
        """Return the next hop of a packet in `state`, None to drop it, and its next state."""
        network, cur = self._network, self._node
        packet = routing.packet_in(network, state, cur)
        server = routing.onward(view, dst, packet, cur)
        hop = None if server == DROP else dr.hop_to(network, cur, server)
        return hop, routing.state_of(network, packet)

    def _octet(self, state: HopState) -> int:
        return route_addresses.first_octet(self._numbers[state])

    def _classes(self) -> Iterator[tuple[Prefix, HopState, int | None]]:
        """Yield each class of packets with a common decision: prefix, state, and a destination.

        The destination is None if the packets have reached their proxy's sub-network.
        """
        network = self._network
        for state in self._states:
            octet = self._octet(state)
            if state.subnetwork == NO_SUBNETWORK:
                for own, dst in self._prefixes:
                    yield route_addresses.with_octets(own, octet), state, dst
                continue
            t, level = network.t, state.level
            proxy = routing.packet_in(network, state, self._node)[routing.PROXY]
            b = self._settings.b
            if self._node % t[level] // t[level - 1] == state.subnetwork:
                yield route_addresses.all_addresses(octet), state, None
            elif routing.exit_link(network.rule, t, b, self._node, proxy)[1] == level:
                yield route_addresses.all_addresses(octet), state, proxy
            # no other packet in this state comes here

    def _down(self, up: set[Hop]) -> bytearray:
        """Return the dead channels of the X(b), numbered as in daemons/routing/shortest.py.

        The state of a reached server's links is what it announced; ours, and the links to our
        neighbours, are as we see them.  All channels of a server that is not reached are dead: its
        last announcement may be out of date.
        """
        network = self._network
        ports = network.k + 2
        near = {hop.node for hop in up}
        graph = self._database.graph()
        graph[self._node] = tuple(near & graph.keys())
        reached = shortest.distances(graph, self._node)
        down = bytearray([1]) * (self._size * ports)
        for server in reached:
            v = server - self._first
            first = server - server % network.n
            cell = range(first, first + network.n)
            if any(mate in reached for mate in graph[server] if mate in cell):
                down[v * ports] = 0
                down[(v + 1) * ports - 1] = self._silent(server, cell, near)
            links = self._links_of(server, near)
            for level in network.levels(server):
                far = network.peer(server, level)
                outside = far // self._size != server // self._size
                down[v * ports + level] = not (far in links and (outside or far in graph[server]))
        return down

    def _links_of(self, server: int, near: set[int]) -> Collection[int]:
        return near if server == self._node else self._database.entries[server].neighbours()

    def _silent(self, server: int, cell: range, near: set[int]) -> bool:
        """Return True if we share a working switch with `server`, and do not hear it."""
        if self._node not in cell or near.isdisjoint(cell):
            return False
        return server != self._node and server not in near


def prefixes(network: Ccrdn, server: int, b: int) -> list[tuple[Prefix, int]]:
    """Return the prefixes of destinations with one decision each, and a destination in it.

    These are the sub-networks beside the server's own at every level above b, and every other
    server of its X(b).
    """
    t, layout = network.t, network.layout
    label = layout.label_of(server)
    pairs = []
    for level in range(network.k, b, -1):
        above, own = label[: network.k - level], label[network.k - level]
        first = server - server % t[level]
        for subnetwork in range(network.copies[level]):
            if subnetwork != own:
                dst = first + subnetwork * t[level - 1]
                pairs.append((layout.prefix((*above, subnetwork)), dst))
    first = server - server % t[b]
    others = [other for other in range(first, first + t[b]) if other != server]
    return pairs + [(Prefix(layout.address(layout.label_of(other)), 32), other) for other in others]


OWN = {
    "b": IntegerParameter(
        "level of the sub-network whose link state a server knows", 0, 8, default=1
    ),
    "retry": IntegerParameter("reroutes that a packet may make", 0, 100, default=3),
    "ttl": IntegerParameter("hops that a packet may make", 1, 255, default=64),
    "nearest": IntegerParameter.flag(
        "1: reroute over the nearest proxy link; 0: over any", default=True
    ),
}


def settings(network: Ccrdn, options: Options) -> Dfr:
    """Return the parameters of DFR; ValueError if the network has no sub-network of level b."""
    if options["b"] > network.k:
        raise ValueError(
            f"scheme dfr: b must be at most {network.k}, the levels of the network, got "
            f"{options['b']}"
        )
    return Dfr(options["b"], options["retry"], options["ttl"], bool(options["nearest"]))


def octets_in_use(network: Ccrdn, options: Options) -> tuple[int, ...]:
    """Return the first octets of packets' addresses, that of a packet at its source first.

    ValueError if there are too few.
    """
    states = routing.states(network, settings(network, options))
    return tuple(first_octet(number) for number, _ in enumerate(states))


def check(topology: Topology, options: Options) -> None:
    """Raise ValueError unless DFR can route `topology` with these options."""
    octets_in_use(for_servers("dfr", topology), options)


def configure(topology: Topology, options: Options, link_kbps: int) -> dict[int, NodeConfig]:
    """Return configurations without routes: every server computes its own."""
    octets = octets_in_use(for_servers("dfr", topology), options)
    return node_configs(
        topology, "dfr", __name__, options, needs=(PrefixRewrite(octets, options["ttl"]),)
    )


def machine(config: NodeConfig, incarnation: int) -> StateMachine:
    """Return the state machine of DFR, with link state of the server's own X(b)."""
    assert config.network
    network, own_settings = config.network, settings(config.network, config.options)
    size = network.t[own_settings.b]
    first = config.node - config.node % size
    return DfrRouting(
        parameters.neighbourhood(config, incarnation),
        parameters.database(config, incarnation, scope=range(first, first + size)),
        network,
        settings=own_settings,
        hold_s=config.options["hold_ms"] / 1000,
    )


def path(topology: Topology, options: Options, src: int, dst: int) -> list[RoutedPath]:
    """Return a packet's path if every server knows the dead links of its scope; none if dropped."""
    network = for_servers("dfr", topology)
    down = dead_channels(topology, network)
    nodes, arrives = routing.route(
        network.rule, network.t, settings(network, options), down, src, dst
    )
    return [RoutedPath(tuple(nodes))] if arrives else []


SCHEMES = (
    Scheme(
        name="dfr",
        summary="fault-tolerant routing (DFR): link state within a scope, local reroutes beyond it",
        source="DCell, SIGCOMM 2008, section 4.3; CCRDN 4.2.1",
        parameters=parameters.HELLO | parameters.LINK_STATE | parameters.DAMPING | OWN,
        check=check,
        configure=configure,
        machine=machine,
        path=path,
        needs=frozenset({PrefixRewrite}),
        connects=arrives_by(path),
        fixed_path=True,
    ),
)
