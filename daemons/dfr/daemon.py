"""DFR, fault-tolerant routing (daemons/dfr/routing.py), as a daemon.

DCellBroadcast: every server floods the state of its links within its X(b) (link_state.py), those
that lead out of it among them, and knows of no others.

Forwarding is by installed state, and is what deciding for each packet would be: the next hop
depends on nothing but the packet's destination, what it carries (daemons/dfr/dfr_addresses.py) and
the link state of the X(b), and the last changes seldom.  So for every state that a packet may be
in, and every prefix of destinations for which the decision is one and the same, the daemon asks
onward(), the very function that decides per packet elsewhere, and sets

    a route               where the packet goes on as it is
    a rewrite             where it is rerouted, or has reached its proxy: it goes on with another
    state's address
    an unreachable route  where it is dropped

Ours: where any proxy link may be taken, not only the nearest, one is drawn for each server and not
for each packet.  A packet that goes no further because its server is not told yet, or a flood is
under way, lives as long as its TTL.
"""

from __future__ import annotations

from typing import Any

from weft.daemons.control.hello import Neighbourhood
from weft.daemons.control.link_state import Database
from weft.daemons.control.link_state_routing import Flooding
from weft.daemons.core.actions import Action, Hop, SetPrefixRewrite, SetRoute
from weft.daemons.dfr import dfr_addresses
from weft.daemons.dfr import routing as dfr
from weft.daemons.dfr.dfr_addresses import NO_SUBNETWORK, HopState
from weft.daemons.routing import dr, first_octets, shortest
from weft.daemons.routing.scope import distances
from weft.topologies.core.address import SERVER_BLOCK, Prefix
from weft.topologies.recursive.ccrdn import Ccrdn

# packets of our own, before their state's octet is in their address
OWN_PACKETS = Prefix(SERVER_BLOCK, 8)


class DfrRouting(Flooding):
    """A state machine for the server of `neighbourhood` and `database`, whose scope is the server's
    X(settings.b)."""

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        database: Database,
        network: Ccrdn,
        *,
        settings: dfr.Dfr,
        hold_s: float,
    ) -> None:
        super().__init__(neighbourhood, database, hold_s=hold_s)
        self._network = network
        self._settings = settings
        self._size = network.t[settings.b]
        self._first = self._node - self._node % self._size
        self._states = dfr_addresses.states(network, settings)
        self._numbers = dfr_addresses.numbers(network, settings)
        self._prefixes = prefixes(network, self._node, settings.b)
        self._routes: dict[Prefix, tuple[Hop, ...]] = {}  # as set
        self._octets: dict[Prefix, int] = {}  # as rewritten

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
        """Prefixes whose packets are rerouted here, by the state of those that leave their
        source."""
        direct = first_octets.first_octet(0)
        return [prefix for prefix in self._octets if prefix.network >> 24 == direct]

    def _routes_now(self) -> list[Action]:
        routes, octets = self._decide()
        actions: list[Action] = []
        for prefix, hops in routes.items():
            # What was never set stays as a daemon before this one left it, until something is
            # known.
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
        """Hops of every prefix, and first octets of those that get others."""
        network, settings, size = self._network, self._settings, self._size
        up = {neighbour.hop for neighbour in self._neighbourhood.neighbours() if neighbour.up}
        down = self._down(up)
        distance, parent, queue = [0] * size, [0] * size, [0] * size
        distances(
            network.rule,
            network.t,
            settings.b,
            down,
            self._node - self._first,
            distance,
            parent,
            queue,
        )
        packet = [0] * dfr.FIELDS
        routes: dict[Prefix, tuple[Hop, ...]] = {OWN_PACKETS: tuple(sorted(up))[:1]}
        octets: dict[Prefix, int] = {}

        def decide(prefix: Prefix, state: HopState, dst: int) -> None:
            dfr_addresses.write(network, state, self._node, packet)
            to = dfr.onward(
                network.rule,
                network.t,
                settings,
                down,
                self._node,
                dst,
                packet,
                self._node,
                distance,
                parent,
            )
            hop = None if to == dfr.DROP else dr.hop_to(network, self._node, to)
            routes[prefix] = (hop,) if hop and hop in up else ()
            after = dfr_addresses.read(network, packet)
            if hop and after != state:
                octets[prefix] = first_octets.first_octet(self._numbers[after])

        for number, state in enumerate(self._states):
            octet = first_octets.first_octet(number)
            if state.copy == NO_SUBNETWORK:
                for own, dst in self._prefixes:
                    decide(first_octets.prefix(own, octet), state, dst)
            elif self._node % network.t[state.level] // network.t[state.level - 1] == state.copy:
                arrived = HopState(state.level, NO_SUBNETWORK, state.retry)
                octets[first_octets.everybody(octet)] = first_octets.first_octet(
                    self._numbers[arrived]
                )
            else:
                dfr_addresses.write(network, state, self._node, packet)
                near = dfr.exit_link(
                    network.rule, network.t, settings.b, self._node, packet[dfr.PROXY]
                )[1]
                if near == state.level:  # else no packet in this state comes here
                    decide(first_octets.everybody(octet), state, packet[dfr.PROXY])
        return routes, octets

    def _down(self, up: set[Hop]) -> bytearray:
        """The dead channels of the X(b), as daemons/routing/scope.py numbers them: of those who are
        reached as they say, of our own and to our neighbours as we see it.  All of those who are
        not reached: what they said last may have ceased to be true."""
        network, ports = self._network, self._network.k + 2
        graph = self._database.graph()
        near = {hop.node for hop in up}
        graph[self._node] = tuple(near & graph.keys())
        reached = shortest.distances(graph, self._node)
        mates = {self._node, *near}
        down = bytearray([1]) * (self._size * ports)
        for server in reached:
            v = server - self._first
            links = near if server == self._node else self._database.entries[server].neighbours()
            cell = range(server - server % network.n, server - server % network.n + network.n)
            if any(mate in reached for mate in graph[server] if mate in cell):
                down[v * ports] = 0
                down[(v + 1) * ports - 1] = (
                    self._node in cell and not near.isdisjoint(cell) and server not in mates
                )
            for level in network.levels(server):
                far = network.peer(server, level)
                outside = not self._first <= far < self._first + self._size
                down[v * ports + level] = not (far in links and (outside or far in graph[server]))
        return down


def prefixes(network: Ccrdn, server: int, b: int) -> list[tuple[Prefix, int]]:
    """The prefixes of destinations for which DFR decides one and the same at `server`, and a
    destination of each: the copies that the server sees at every level above b, and every other
    server of its X(b)."""
    t, layout = network.t, network.layout
    label = layout.label_of(server)
    found = []
    for level in range(network.k, b, -1):
        above, own = label[: network.k - level], label[network.k - level]
        first = server - server % t[level]
        copies = [copy for copy in range(network.copies[level]) if copy != own]
        found += [(layout.prefix((*above, copy)), first + copy * t[level - 1]) for copy in copies]
    first = server - server % t[b]
    others = [other for other in range(first, first + t[b]) if other != server]
    return found + [(Prefix(layout.address(layout.label_of(other)), 32), other) for other in others]
