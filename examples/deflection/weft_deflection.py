"""Hot-potato deflection on DCell: a packet whose next hop of DR is dead goes to another live
neighbour at once.

A server knows nothing but which of its neighbours live. For each prefix it has them in order: DR's
hop, then those from which DR does without that one and needs the fewest hops; none from which DR
comes back here. Two dead hops may thereby hand a packet back and forth until its TTL is over, and a
dead link to a crossbar is two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.daemons.control import parameters
from weft.daemons.control.candidate_routes import LiveRoutes
from weft.daemons.control.hello import Neighbourhood
from weft.daemons.core.actions import NOTHING, Action, Hop, SetRoute
from weft.daemons.core.contract import Adjacencies, StateMachine, useless
from weft.daemons.core.events import DaemonEvent
from weft.daemons.core.node_config import NodeConfig, Options, Routes, node_configs
from weft.daemons.core.scheme import RoutedPath, Scheme, arrives_by, for_servers
from weft.daemons.routing import dr
from weft.topologies.core.address import Prefix

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology


def choices(topology: Topology, server: int) -> Routes:
    """For each prefix of DR, all neighbours of `server` in the order in which they are taken."""
    network = for_servers("deflection", topology)
    near = [
        Hop(port, node) for port, nodes in topology.neighbours(server).items() for node in nodes
    ]
    found = []
    for prefix, first in dr.prefix_routes(network, server):
        there = network.layout.number_of(network.layout.digits(prefix.network))
        onward = {
            hop: dr.route(network.rule, network.t, hop.node, there) for hop in near if hop != first
        }
        others = [hop for hop, route in onward.items() if server not in route]
        cost = {hop: (first.node in onward[hop], len(onward[hop]), hop) for hop in others}
        found.append((prefix, (first, *sorted(others, key=cost.__getitem__))))
    return tuple(found)


class Deflection:
    """The state machine of one server."""

    def __init__(self, neighbourhood: Neighbourhood, routes: Routes) -> None:
        self._links = LiveRoutes(neighbourhood, ())  # knows who lives, and sets no routes
        self._choices = dict(routes)
        self._set: dict[Prefix, tuple[Hop, ...]] = {}

    @property
    def deadline(self) -> float:
        return self._links.deadline

    def start(self, now: float) -> Sequence[Action]:
        return self._follow(self._links.start(now))

    def receive(self, payload: bytes, port: int, now: float) -> Sequence[Action]:
        heard = self._links.receive(payload, port, now)
        return self._follow(heard) if heard else NOTHING

    def link_changed(self, port: int, up: bool, now: float) -> Sequence[Action]:
        return self._follow(self._links.link_changed(port, up, now))

    def event(self, event: DaemonEvent, now: float) -> Sequence[Action]:
        raise useless(event)

    def tick(self, now: float) -> Sequence[Action]:
        return self._follow(self._links.tick(now))

    def converged(self) -> bool:
        return self._links.converged() and all(
            self._set[prefix] == hops[:1] for prefix, hops in self._choices.items()
        )

    def adjacencies(self) -> Adjacencies:
        return self._links.adjacencies()

    def status(self) -> dict[str, Any]:
        lost = [str(prefix) for prefix, hops in self._set.items() if not hops]
        return {**self._links.status(), "routes": len(self._set) - len(lost), "routes_lost": lost}

    def _follow(self, actions: Sequence[Action]) -> list[Action]:
        """Set the routes that are others now, and do the rest."""
        changed: list[Action] = []
        for prefix, hops in self._choices.items():
            wanted = tuple(hop for hop in hops if self._links.lives(hop))[:1]
            if self._set.get(prefix) != wanted:
                self._set[prefix] = wanted
                changed.append(SetRoute(prefix, wanted))
        return [*changed, *actions]


def check(topology: Topology, options: Options) -> None:
    """ValueError unless `topology` is a DCell."""
    for_servers("deflection", topology)
    if topology.family != "dcell":
        raise ValueError(f"scheme deflection needs a dcell, not {topology.spec}")


def configure(topology: Topology, options: Options, link_kbps: int) -> dict[int, NodeConfig]:
    """Every server knows its neighbours in order."""
    return node_configs(topology, "deflection", __name__, options, candidates=choices)


def machine(config: NodeConfig, incarnation: int) -> StateMachine:
    """Deflection at one server."""
    return Deflection(parameters.neighbourhood(config, incarnation), config.candidates)


def path(topology: Topology, options: Options, src: int, dst: int) -> list[RoutedPath]:
    """The servers that a packet visits; none if it goes in circles or has no way on."""
    address, live, visited = topology.naming.address(dst), topology.adjacency, [src]
    while visited[-1] != dst:
        table = choices(topology, visited[-1])
        hops = next(hops for prefix, hops in table if prefix.holds(address))
        onward = next((hop.node for hop in hops if hop.node in live[visited[-1]]), None)
        if onward is None or onward in visited:
            return []
        visited.append(onward)
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
