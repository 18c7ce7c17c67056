"""The routing schemes by name, with the grammar of topologies/core/grammar.py: dr, or dr:hello_ms=30,dead=3.

What a node's daemon has to know of the network is worked out once, by whoever holds the whole graph, as a View:
views().  From it alone protocol() makes the state machine, without graph and without numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from daemons.control.bfs import Bfs
from daemons.control.candidate_routes import LiveRoutes
from daemons.control.hello import Neighbourhood
from daemons.control.link_state import Database
from daemons.core.contract import Hop, RoutingProtocol
from daemons.dfr import dfr_addresses
from daemons.dfr.daemon import DfrRouting
from daemons.dfr.routing import Dfr
from daemons.lbsp.daemon import Lbsp
from daemons.lbsp.routing import Shape, shape_of
from daemons.proxy import routing as proxy
from daemons.proxy.daemon import Pr
from daemons.routing import load_balancing, proxy_addresses
from daemons.routing.candidates import candidates
from daemons.tar.daemon import TarRouting
from topologies.core.address import Prefix
from topologies.core.family import Parameter
from topologies.core.grammar import integer, parse, unknown
from topologies.recursive.ccrdn import Ccrdn, CcrdnNaming

if TYPE_CHECKING:
    from topologies.core.topology import Topology

Routes = tuple[tuple[Prefix, tuple[Hop, ...]], ...]
UNSHAPED_KBPS = 10**6  # what a link is taken to carry that is not shaped
GOLDEN_FRACTION = 0.6180339887498949  # its multiples modulo 1 are spread evenly however many are taken


@dataclass(frozen=True, kw_only=True)
class View:
    """What `node` needs to know to route by `scheme`; plain tuples and integers.

    ports: each port that carries hellos, and the nodes that the topology promises there.
    network: of a DCell, beta-DCell or FiConn, its sizes.
    candidates: prefixes and the hops that may be used for each.
    destinations: prefixes and the node that each leads to, where the scheme finds the hops itself.
    names: of this node and its neighbours, for those who read logs.
    phase_fraction: where in an interval this node's hellos lie.
    radices: of a switch fabric, those of its hosts' labels.
    """

    scheme: str
    options: Mapping[str, int]
    node: int
    network: Ccrdn | None
    ports: tuple[tuple[int, tuple[int, ...]], ...]
    candidates: Routes
    destinations: tuple[tuple[Prefix, int], ...]
    names: Mapping[int, str]
    phase_fraction: float
    radices: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """A way to route.

    server_centric: the kind of network that it is for, None for both.
    candidates: (topology, node) -> routes of that node's View.
    all_destinations: whether the View has those of the whole network.
    make: (view, incarnation) -> state machine.
    steers: whether that is a SteeringProtocol.
    readdresses: whether its packets bear what daemons/dfr/dfr_addresses.py says.
    flows: whether that is a FlowProtocol.
    balancing: how the data plane of a switch fabric chooses among the hops of a route, as load_balancing.py has it;
        none: routes are the kernel's alone.
    check: (topology, options) -> None; ValueError if the scheme cannot route it.
    """

    name: str
    summary: str
    parameters: Mapping[str, Parameter]
    server_centric: bool | None
    candidates: Callable[[Topology, int], Iterable[tuple[Prefix, tuple[Hop, ...]]]]
    all_destinations: bool
    make: Callable[[View, int], RoutingProtocol]
    steers: bool = False
    readdresses: bool = False
    flows: bool = False
    balancing: str = ""
    check: Callable[[Topology, Mapping[str, int]], None] | None = None

    @property
    def readdressed(self) -> bool:
        """Whether packets leave their source with addresses that are not a server's own."""
        return self.steers or self.readdresses or self.flows

    @property
    def relays(self) -> bool:
        """Whether servers change what packets of others bear."""
        return self.readdresses or self.flows

    def options(self, given: Mapping[str, str]) -> dict[str, int]:
        """`given`, text, as integers, defaults filled in; ValueError if any is unknown or out of range."""
        for key in given:
            if key not in self.parameters:
                raise ValueError(f"scheme {self.name}: " + unknown("parameter", key, self.parameters))
        return {
            key: integer(f"scheme {self.name}", key, given[key], least=parameter.least, most=parameter.most)
            if key in given
            else parameter.default or 0
            for key, parameter in self.parameters.items()
        }


def scheme(spec: str) -> tuple[Scheme, dict[str, int]]:
    """The scheme that `spec` names, and its options; ValueError says in one line what is wrong with it."""
    name, given = parse(spec)
    if name not in SCHEMES:
        raise ValueError(unknown("scheme", name, SCHEMES))
    return SCHEMES[name], SCHEMES[name].options(given)


def usual(topology: Topology) -> str:
    """The scheme that routes `topology` if nobody says which."""
    return "dr" if topology.server_centric else "ecmp"


def routers(topology: Topology) -> range:
    """The nodes that run a daemon: the servers of a server-centric network, the switches of a fabric."""
    return range(topology.servers) if topology.server_centric else range(topology.servers, topology.nodes)


def views(topology: Topology, spec: str, *, link_kbps: int = UNSHAPED_KBPS) -> dict[int, View]:
    """What every router of `topology`, as it is wired, needs to know to route by the scheme `spec`.

    link_kbps: what its links carry, in kbit/s.
    ValueError, in one line, if the scheme is not for such a network.
    """
    chosen, options = scheme(spec)
    if options.get("capacity_kbps") == 0:
        options["capacity_kbps"] = link_kbps
    if chosen.server_centric not in (None, topology.server_centric):
        is_a, take = ("server-centric network", "dr") if topology.server_centric else ("switch fabric", "ecmp")
        runs_on = "server-centric networks" if chosen.server_centric else "switch fabrics"
        raise ValueError(f"scheme {chosen.name} runs on {runs_on}; {topology.spec} is a {is_a}, take {take}")
    naming = topology.naming
    if chosen.steers and isinstance(naming, CcrdnNaming):
        proxy_addresses.ways(naming.network)  # there must be addresses enough
    if chosen.readdresses and isinstance(naming, CcrdnNaming):
        first_octets(naming.network, options)
    if chosen.check:
        chosen.check(topology, options)
    destinations = tuple(_destinations(topology)) if chosen.all_destinations else ()
    runs_daemon = routers(topology)
    found = {}
    for node in runs_daemon:
        wired = topology.neighbours(node).items()
        ports = {port: nodes for port, nodes in wired if all(other in runs_daemon for other in nodes)}
        known = {node, *(other for nodes in ports.values() for other in nodes)}
        found[node] = View(
            scheme=chosen.name,
            options=options,
            node=node,
            network=naming.network if isinstance(naming, CcrdnNaming) else None,
            ports=tuple(ports.items()),
            candidates=tuple(chosen.candidates(topology, node)),
            destinations=destinations,
            names={other: naming.name(other) for other in known},
            phase_fraction=1 - node * GOLDEN_FRACTION % 1,
            radices=() if topology.server_centric else naming.layout.radices,
        )
    return found


def protocol(view: View, incarnation: int) -> RoutingProtocol:
    """The state machine of view.node.

    incarnation: larger than that of any daemon that ran on this node before, below 2^63: nanoseconds since 1970, say.
    """
    return SCHEMES[view.scheme].make(view, incarnation)


def first_octets(network: Ccrdn, options: Mapping[str, int]) -> list[int]:
    """What the addresses of DFR's packets may begin with, first those of packets that leave their source."""
    return [dfr_addresses.octet(i) for i, _ in enumerate(dfr_addresses.states(network, settings(network, options)))]


def _destinations(topology: Topology) -> list[tuple[Prefix, int]]:
    """What leads to each router: in a server-centric network its own address, in a fabric its hosts'.

    The hosts of a switch are one prefix where no others are in it, which holds for every fabric that there is.
    """
    naming = topology.naming
    if topology.server_centric:
        return [(Prefix(naming.address(server), 32), server) for server in range(topology.servers)]
    layout = naming.layout
    within: dict[Prefix, set[int]] = {}
    for host in range(topology.servers):
        within.setdefault(layout.prefix(layout.label_of(host)[:-1]), set()).add(topology.ports(host)[0][1])
    found = [(prefix, switch) for prefix, switches in within.items() for switch in switches]
    assert len(found) == len(within), f"{topology.spec}: hosts of several switches share a prefix"
    return found


def _local(topology: Topology, node: int) -> Routes:
    """The hosts of a switch."""
    if topology.server_centric:
        return ()
    naming = topology.naming
    return tuple(
        (Prefix(naming.address(host), 32), (Hop(port, host),))
        for port, host, _, _ in topology.ports(node)
        if host < topology.servers
    )


def _none(topology: Topology, node: int) -> Routes:
    """Of a scheme that finds its prefixes itself."""
    return ()


def _neighbourhood(view: View, incarnation: int) -> Neighbourhood:
    return Neighbourhood(
        view.node,
        dict(view.ports),
        incarnation=incarnation,
        interval_ms=view.options["hello_ms"],
        dead=view.options["dead"],
        phase_fraction=view.phase_fraction,
        names=view.names,
        damp_s=view.options.get("damp_ms", 0) / 1000,
        most_damp_s=view.options.get("most_damp_ms", 0) / 1000,
    )


def _live_routes(view: View, incarnation: int) -> RoutingProtocol:
    return LiveRoutes(_neighbourhood(view, incarnation), view.candidates)


def _bfs(view: View, incarnation: int) -> RoutingProtocol:
    database = Database(
        view.node,
        dict(view.ports),
        incarnation=incarnation,
        lifetime_ms=view.options["lifetime_s"] * 1000,
        settle_s=2 * view.options["hello_ms"] / 1000,
        phase_fraction=view.phase_fraction,
    )
    hold_s = view.options["hold_ms"] / 1000
    return Bfs(_neighbourhood(view, incarnation), database, view.destinations, view.candidates, hold_s=hold_s)


def settings(network: Ccrdn, options: Mapping[str, int]) -> Dfr:
    """What DFR's options say; ValueError for a scope that the network does not have."""
    if options["b"] > network.k:
        raise ValueError(f"scheme dfr: b must be at most {network.k}, the levels of the network, got {options['b']}")
    return Dfr(options["b"], options["retry"], options["ttl"], bool(options["nearest"]))


def _dfr(view: View, incarnation: int) -> RoutingProtocol:
    assert view.network
    network, chosen = view.network, settings(view.network, view.options)
    size = network.t[chosen.b]
    scope = range(view.node - view.node % size, view.node - view.node % size + size)
    database = Database(
        view.node,
        {port: [node for node in nodes if node in scope] for port, nodes in view.ports},
        incarnation=incarnation,
        scope=scope,
        lifetime_ms=view.options["lifetime_s"] * 1000,
        settle_s=2 * view.options["hello_ms"] / 1000,
        phase_fraction=view.phase_fraction,
    )
    hold_s = view.options["hold_ms"] / 1000
    return DfrRouting(_neighbourhood(view, incarnation), database, network, settings=chosen, hold_s=hold_s)


def _tar(view: View, incarnation: int) -> RoutingProtocol:
    assert view.network
    return TarRouting(
        _neighbourhood(view, incarnation),
        view.network,
        view.candidates,
        incarnation=incarnation,
        **{name: view.options[name] for name in TAR_PARAMETERS},
    )


def _check_tar(topology: Topology, options: Mapping[str, int]) -> None:
    """ValueError unless servers have two ports, as TAR takes them to have."""
    if topology.family != "ficonn":
        raise ValueError(f"scheme tar needs a ficonn, whose servers have two ports, not {topology.spec}")


def _pr(method: int) -> Callable[[View, int], RoutingProtocol]:
    """PR with the candidates of GP_E, GP_I or GP_0."""

    def make(view: View, incarnation: int) -> RoutingProtocol:
        assert view.network
        options = view.options
        policy = proxy.Policy(method, options["level"] or view.network.k, bool(options["condition1"]))
        return Pr(
            _neighbourhood(view, incarnation),
            view.network,
            view.candidates,
            policy=policy,
            choice=options["choice"],
            hello_ms=options["hello_ms"],
            refresh_ms=options["refresh_ms"],
            probe_ms=options["probe_ms"],
            hold_ms=options["hold_ms"],
            most_hold_ms=options["most_hold_ms"],
            table_ms=options["table_ms"],
            idle_s=options["idle_s"],
            probes_per_s=options["probes_per_s"],
            urgent_per_s=options["urgent_per_s"],
            wakes_per_s=options["wakes_per_s"],
        )

    return make


def _lbsp(view: View, incarnation: int) -> RoutingProtocol:
    options = view.options
    return Lbsp(
        _neighbourhood(view, incarnation),
        Shape.of(view.radices, options["groups"]),
        view.candidates,
        incarnation=incarnation,
        lifetime_ms=options["lifetime_ms"],
        patience_s=options["patience_ms"] / 1000,
        begin_s=(options["dead"] + 2) * options["hello_ms"] / 1000,
        gap_s=options["hello_ms"] / 1000,
    )


def _check_lbsp(topology: Topology, options: Mapping[str, int]) -> None:
    """ValueError unless LBSP can part the paths of `topology`."""
    shape_of(topology, options["groups"])


HELLO_PARAMETERS = {
    "hello_ms": Parameter(meaning="time between hellos, in ms", least=1, most=10_000, default=30),
    "dead": Parameter(meaning="hellos missing before a neighbour is dead", least=1, most=100, default=3),
}
LINK_STATE_PARAMETERS = {
    "hold_ms": Parameter(meaning="from a change to new routes, in ms", least=0, most=10_000, default=2),
    "lifetime_s": Parameter(meaning="how long link state is believed, in s", least=1, most=86_400, default=300),
}
DAMPING_PARAMETERS = {
    "damp_ms": Parameter(
        meaning="how long a link that flaps stays down, the first time, in ms; 0: no longer than it is dead",
        least=0,
        most=60_000,
        default=500,
    ),
    "most_damp_ms": Parameter(
        meaning="how long at most, where it flaps on and on, in ms", least=0, most=3_600_000, default=10_000
    ),
}
DFR_PARAMETERS = {
    "b": Parameter(meaning="level of the sub-network whose link state a server knows", least=0, most=8, default=1),
    "retry": Parameter(meaning="how often a packet may be rerouted", least=0, most=100, default=3),
    "ttl": Parameter(meaning="how many hops a packet may make", least=1, most=255, default=64),
    "nearest": Parameter(meaning="1: reroute over the nearest proxy link; 0: over any", least=0, most=1, default=1),
}
TAR_PARAMETERS = {
    "capacity_kbps": Parameter(
        meaning="what a link carries, in kbit/s, 0: what links are shaped to, 1 Gbit/s if they are not",
        least=0,
        most=10**9,
        default=0,
    ),
    "relay": Parameter(
        meaning="a bypassed flow goes 0: to any server of the switch; 1: over another's link of the level; 2: to any "
        "third sub-network",
        least=0,
        most=2,
        default=2,
    ),
    "step_percent": Parameter(
        meaning="available bandwidth that a bypass must gain, in % of that", least=1, most=100, default=5
    ),
    "refresh_ms": Parameter(meaning="time between probes of a flow in use, in ms", least=10, most=60_000, default=1000),
    "refreshes": Parameter(
        meaning="such times that servers keep a flow that is not probed again", least=2, most=100, default=3
    ),
    "refreshes_per_s": Parameter(
        meaning="flows that a server probes again at most, per s", least=1, most=10_000, default=5
    ),
    "probes_per_s": Parameter(meaning="probes that a server sends at most, per s", least=1, most=100_000, default=100),
    "probe_ms": Parameter(meaning="how long an answer may take, in ms", least=1, most=10_000, default=200),
    "idle_s": Parameter(meaning="how long an unused flow is remembered, in s", least=1, most=3600, default=10),
}
PR_PARAMETERS = {
    "level": Parameter(
        meaning="least level at which proxies are tried, 0: the top level only", least=0, most=8, default=1
    ),
    "condition1": Parameter(meaning="1: no proxies where source and destination are near", least=0, most=1, default=0),
    "choice": Parameter(
        meaning="0: the shortest path, then the least congested; 1: the other way round; 2: as 0, but DR where source "
        "and destination are near and DR is connected",
        least=0,
        most=2,
        default=0,
    ),
    "refresh_ms": Parameter(
        meaning="time between questions about a path in use, in ms", least=10, most=60_000, default=1000
    ),
    "probes_per_s": Parameter(
        meaning="routine questions that a server asks at most, per s", least=1, most=100_000, default=2
    ),
    "urgent_per_s": Parameter(
        meaning="questions that a server asks at most where a path broke, per s", least=1, most=100_000, default=2
    ),
    "wakes_per_s": Parameter(
        meaning="times that a server wakes another for a question or bad news at most, per s",
        least=1,
        most=100_000,
        default=8,
    ),
    "probe_ms": Parameter(meaning="how long an urgent answer may take, in ms", least=1, most=10_000, default=300),
    "hold_ms": Parameter(meaning="how long a path that broke is left alone, in ms", least=1, most=30_000, default=500),
    "most_hold_ms": Parameter(
        meaning="how long at most, where it breaks again and again, in ms", least=1, most=3_600_000, default=30_000
    ),
    "table_ms": Parameter(
        meaning="how long a server tells others that the way through its copy is broken, in ms; 0: it does not",
        least=0,
        most=30_000,
        default=0,
    ),
    "idle_s": Parameter(meaning="how long an unused destination is remembered, in s", least=1, most=3600, default=10),
}
LBSP_PARAMETERS = {
    **{
        name: Parameter(meaning=key.meaning, least=key.least, most=key.most, default=int(key.default))
        for name, key in load_balancing.KINDS["lbsp"].keys.items()
    },
    "patience_ms": Parameter(
        meaning="how long links may take to come up at first before others are told, in ms",
        least=0,
        most=60_000,
        default=1000,
    ),
    "rate_kbps": Parameter(
        meaning="rate of the links: those found slower count as degraded, in kbit/s; 0: nobody looks",
        least=0,
        most=2_000_000,
        default=0,
    ),
    "lifetime_ms": Parameter(
        meaning="how long a failure message is believed, in ms", least=30, most=3_600_000, default=3000
    ),
}


def _pr_scheme(name: str, method: int, candidates_are: str) -> Scheme:
    return Scheme(
        name=name,
        summary=f"proxy routing: the best of DR and of the paths by way of a third sub-network, {candidates_are}",
        parameters=HELLO_PARAMETERS | PR_PARAMETERS,
        server_centric=True,
        candidates=candidates,
        all_destinations=False,
        make=_pr(method),
        steers=True,
    )


SCHEMES: Mapping[str, Scheme] = {
    "dr": Scheme(
        name="dr",
        summary="dimensional routing (DCellRouting, TOR) over the links that live",
        parameters=HELLO_PARAMETERS,
        server_centric=True,
        candidates=candidates,
        all_destinations=False,
        make=_live_routes,
    ),
    "pr-gpe": _pr_scheme("pr-gpe", proxy.GP_E, "any of them (GP_E)"),
    "pr-gpi": _pr_scheme("pr-gpi", proxy.GP_I, "one near source or destination (GP_I)"),
    "pr-gp0": _pr_scheme("pr-gp0", proxy.GP_0, "one joined to the switch of either (GP_0)"),
    "dfr": Scheme(
        name="dfr",
        summary="fault-tolerant routing (DFR): link state within a scope, local reroutes beyond it",
        parameters=HELLO_PARAMETERS | LINK_STATE_PARAMETERS | DAMPING_PARAMETERS | DFR_PARAMETERS,
        server_centric=True,
        candidates=_none,
        all_destinations=False,
        make=_dfr,
        readdresses=True,
    ),
    "tar": Scheme(
        name="tar",
        summary="traffic-aware routing (TAR): each flow's path is set up by a probe that avoids busy links",
        parameters=HELLO_PARAMETERS | DAMPING_PARAMETERS | TAR_PARAMETERS,
        server_centric=True,
        candidates=candidates,
        all_destinations=False,
        make=_tar,
        flows=True,
        check=_check_tar,
    ),
    "ecmp": Scheme(
        name="ecmp",
        summary="all equal-cost shortest paths of a switch fabric over the links that live, a flow's by its hash",
        parameters=HELLO_PARAMETERS | LINK_STATE_PARAMETERS,
        server_centric=False,
        candidates=_local,
        all_destinations=True,
        make=_bfs,
        balancing="ecmp",
    ),
    "bfs": Scheme(
        name="bfs",
        summary="shortest paths over the links that live, all of them known to all by link state",
        parameters=HELLO_PARAMETERS | LINK_STATE_PARAMETERS,
        server_centric=None,
        candidates=_local,
        all_destinations=True,
        make=_bfs,
    ),
    "lbsp": Scheme(
        name="lbsp",
        summary="symmetric path groups by destination, packets in turns within, others where a link fails (Lim)",
        parameters=HELLO_PARAMETERS | LBSP_PARAMETERS,
        server_centric=False,
        candidates=_local,
        all_destinations=False,
        make=_lbsp,
        balancing="lbsp",
        check=_check_lbsp,
    ),
}
