"""Proxy routing with the candidates of GP_E, GP_I or GP_0 (CCRDN, section 5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.daemons.control import parameters
from weft.daemons.core.contract import SourceRewrite, StateMachine
from weft.daemons.core.node_config import NodeConfig, Options, node_configs, settings_of
from weft.daemons.core.scheme import RoutedPath, Scheme, arrives_by, for_servers
from weft.daemons.dr.scheme import if_alive
from weft.daemons.proxy import routing as proxy
from weft.daemons.proxy.daemon import Pr, tables
from weft.daemons.proxy.path_selection import ProbeSettings
from weft.daemons.routing import route_addresses
from weft.daemons.routing.candidates import candidates
from weft.topologies.core.family import IntegerParameter
from weft.topologies.recursive.ccrdn import Ccrdn

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

OWN = {
    "level": IntegerParameter("least level with proxies; 0: the top level only", 0, 8, default=1),
    "condition1": IntegerParameter.flag("1: no proxies if source and destination are near"),
    "choice": IntegerParameter(
        "0: the shortest path, then the least congested; 1: the least congested, then the "
        "shortest; 2: as 0, but DR if source and destination are near and DR is connected; "
        "3: as 0, but DR if no connected path is shorter",
        0,
        3,
        default=0,
    ),
    "refresh_ms": IntegerParameter(
        "time between probes of an active path, in ms", 10, 60_000, default=1000
    ),
    "probes_per_s": IntegerParameter(
        "maximum rate of a server's routine probes, per s", 1, 100_000, default=2
    ),
    "urgent_per_s": IntegerParameter(
        "maximum rate of a server's urgent probes, after a path broke, per s", 1, 100_000, default=2
    ),
    "wakes_per_s": IntegerParameter(
        "maximum rate at which a server wakes others for probes and news, per s",
        1,
        100_000,
        default=8,
    ),
    "probe_ms": IntegerParameter("least timeout of an urgent probe, in ms", 1, 10_000, default=300),
    "hold_ms": IntegerParameter(
        "first hold-down time of a path that broke, in ms", 1, 30_000, default=500
    ),
    "most_hold_ms": IntegerParameter(
        "maximum hold-down time of a path that flaps, in ms", 1, 3_600_000, default=30_000
    ),
    "table_ms": IntegerParameter(
        "time for which a server answers for a broken path through its sub-network, in "
        "ms; 0: never",
        0,
        30_000,
        default=0,
    ),
    "idle_s": IntegerParameter(
        "time after which an unused destination is forgotten, in s", 1, 3600, default=10
    ),
}


def policy(method: int, network: Ccrdn, options: Options) -> proxy.Policy:
    """Return the policy that these options set."""
    level, condition1 = options["level"] or network.k, bool(options["condition1"])
    return proxy.Policy(method, level, condition1, options["choice"])


def settings(method: int, config: NodeConfig) -> ProbeSettings:
    """Return the settings in the options, in s and per s."""
    assert config.network
    options = config.options
    return settings_of(
        ProbeSettings,
        options,
        policy=policy(method, config.network, options),
        cost=proxy.cost_of(options["choice"]),
    )


def _machine(method: int) -> Callable[[NodeConfig, int], StateMachine]:
    def machine(config: NodeConfig, incarnation: int) -> StateMachine:
        assert config.network
        neighbourhood = parameters.neighbourhood(config, incarnation)
        return Pr(neighbourhood, config.network, config.candidates, settings(method, config))

    return machine


def _path(name: str, method: int) -> Callable[[Topology, Options, int, int], list[RoutedPath]]:
    def path(topology: Topology, options: Options, src: int, dst: int) -> list[RoutedPath]:
        """Return the shortest live path, DR's or by way of a proxy that the policy allows."""
        network = for_servers(name, topology)
        own_policy = policy(method, network, options)
        for _, subnetwork in proxy.alternatives(tables(network), own_policy, src, dst):
            nodes = proxy.route(network.rule, network.t, src, dst, subnetwork)
            if paths := if_alive(topology, nodes):
                return paths
        return []

    return path


def _scheme(name: str, method: int, proxies: str, section: str) -> Scheme:
    def check(topology: Topology, options: Options) -> None:
        route_addresses.ways(for_servers(name, topology))  # raises if there are too few addresses

    def configure(topology: Topology, options: Options, link_kbps: int) -> dict[int, NodeConfig]:
        needs = (SourceRewrite(route_addresses.ways(for_servers(name, topology))),)
        return node_configs(topology, name, __name__, options, candidates=candidates, needs=needs)

    path = _path(name, method)
    return Scheme(
        name=name,
        summary=f"proxy routing: the best of DR and of the paths over a third "
        f"sub-network, {proxies}",
        source=f"CCRDN, section {section}",
        parameters=parameters.HELLO | OWN,
        check=check,
        configure=configure,
        machine=_machine(method),
        path=path,
        needs=frozenset({SourceRewrite}),
        connects=arrives_by(path),
        fixed_path=True,
        loop_free=True,
    )


SCHEMES = (
    _scheme("pr-gpe", proxy.GP_E, "any of them (GP_E)", "5.1"),
    _scheme("pr-gpi", proxy.GP_I, "one near source or destination (GP_I)", "5.2"),
    _scheme("pr-gp0", proxy.GP_0, "one joined to the switch of either (GP_0)", "5.3"),
)
