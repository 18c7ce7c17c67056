"""Proxy routing with the candidates of GP_E, GP_I or GP_0 (CCRDN, section 5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.daemons.control import parameters
from weft.daemons.core.capabilities import SourceRewrite
from weft.daemons.core.contract import StateMachine
from weft.daemons.core.node_config import NodeConfig, Options, node_configs
from weft.daemons.core.scheme import RoutedPath, Scheme, arrives_by, for_servers
from weft.daemons.dr.scheme import if_alive
from weft.daemons.proxy import routing as proxy
from weft.daemons.proxy.daemon import Pr, tables
from weft.daemons.proxy.settings import ProbeSettings
from weft.daemons.routing import proxy_addresses
from weft.daemons.routing.candidates import candidates
from weft.topologies.core.family import IntegerParameter
from weft.topologies.recursive.ccrdn import Ccrdn

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

OWN = {
    "level": IntegerParameter(
        meaning="least level at which proxies are tried, 0: the top level only",
        least=0,
        most=8,
        default=1,
    ),
    "condition1": IntegerParameter.flag("1: no proxies where source and destination are near"),
    "choice": IntegerParameter(
        meaning="0: the shortest path, then the least congested; 1: the other way round; 2: as 0, "
        "but DR where source "
        "and destination are near and DR is connected",
        least=0,
        most=2,
        default=0,
    ),
    "refresh_ms": IntegerParameter(
        meaning="time between questions about a path in use, in ms",
        least=10,
        most=60_000,
        default=1000,
    ),
    "probes_per_s": IntegerParameter(
        meaning="routine questions that a server asks at most, per s",
        least=1,
        most=100_000,
        default=2,
    ),
    "urgent_per_s": IntegerParameter(
        meaning="questions that a server asks at most where a path broke, per s",
        least=1,
        most=100_000,
        default=2,
    ),
    "wakes_per_s": IntegerParameter(
        meaning="times that a server wakes another for a question or bad news at most, per s",
        least=1,
        most=100_000,
        default=8,
    ),
    "probe_ms": IntegerParameter(
        meaning="how long an urgent answer may take, in ms", least=1, most=10_000, default=300
    ),
    "hold_ms": IntegerParameter(
        meaning="how long a path that broke is held down, in ms", least=1, most=30_000, default=500
    ),
    "most_hold_ms": IntegerParameter(
        meaning="how long at most, where it breaks again and again, in ms",
        least=1,
        most=3_600_000,
        default=30_000,
    ),
    "table_ms": IntegerParameter(
        meaning="how long a server tells others that the way through its copy is broken, in "
        "ms; 0: it does not",
        least=0,
        most=30_000,
        default=0,
    ),
    "idle_s": IntegerParameter(
        meaning="how long an unused destination is remembered, in s", least=1, most=3600, default=10
    ),
}


def policy(method: int, network: Ccrdn, options: Options) -> proxy.Policy:
    """Which proxies are tried."""
    dr_first = options["choice"] == proxy.DR_FIRST
    return proxy.Policy(
        method, options["level"] or network.k, bool(options["condition1"]), dr_first
    )


def settings(method: int, config: NodeConfig) -> ProbeSettings:
    """What the parameters say, times in seconds."""
    assert config.network
    options = config.options
    return ProbeSettings(
        policy=policy(method, config.network, options),
        cost=proxy.cost_of(options["choice"]),
        hello_s=config.interval_ms / 1000,
        refresh_s=options["refresh_ms"] / 1000,
        probe_s=options["probe_ms"] / 1000,
        hold_s=options["hold_ms"] / 1000,
        most_hold_s=options["most_hold_ms"] / 1000,
        table_s=options["table_ms"] / 1000,
        idle_s=options["idle_s"],
        probes_per_s=options["probes_per_s"],
        urgent_per_s=options["urgent_per_s"],
        wakes_per_s=options["wakes_per_s"],
    )


def _machine(method: int) -> Callable[[NodeConfig, int], StateMachine]:
    def machine(config: NodeConfig, incarnation: int) -> StateMachine:
        assert config.network
        neighbourhood = parameters.neighbourhood(config, incarnation)
        return Pr(neighbourhood, config.network, config.candidates, settings(method, config))

    return machine


def _path(name: str, method: int) -> Callable[[Topology, Options, int, int], list[RoutedPath]]:
    def path(topology: Topology, options: Options, src: int, dst: int) -> list[RoutedPath]:
        """The shortest live one of DR's path and those of the proxies tried."""
        network = for_servers(name, topology)
        for _, copy in proxy.alternatives(
            tables(network), policy(method, network, options), src, dst
        ):
            if found := if_alive(topology, proxy.route(network.rule, network.t, src, dst, copy)):
                return found
        return []

    return path


def _scheme(name: str, method: int, candidates_are: str, section: str) -> Scheme:
    def check(topology: Topology, options: Options) -> None:
        proxy_addresses.ways(for_servers(name, topology))  # there must be addresses enough

    def configure(topology: Topology, options: Options, link_kbps: int) -> dict[int, NodeConfig]:
        needs = (SourceRewrite(proxy_addresses.ways(for_servers(name, topology))),)
        return node_configs(topology, name, __name__, options, candidates=candidates, needs=needs)

    path = _path(name, method)
    return Scheme(
        name=name,
        summary=f"proxy routing: the best of DR and of the paths by way of a third "
        f"sub-network, {candidates_are}",
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
