"""TAR, traffic-aware routing on FiConn (CCRDN 4.2.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.daemons.control import parameters
from weft.daemons.core.actions import FiveTuple
from weft.daemons.core.capabilities import FlowRewrite
from weft.daemons.core.contract import StateMachine
from weft.daemons.core.node_config import NodeConfig, Options, node_configs
from weft.daemons.core.scheme import RoutedPath, Scheme, for_servers
from weft.daemons.routing.candidates import candidates
from weft.daemons.routing.scope import dead_channels
from weft.daemons.tar import routing as tar
from weft.daemons.tar.daemon import TarRouting
from weft.daemons.tar.own_flows import ATTEMPTS
from weft.daemons.tar.settings import TarSettings
from weft.topologies.core.family import IntegerParameter

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

ICMP = 1  # IP protocol number
OWN = {
    "capacity_kbps": IntegerParameter(
        meaning="what a link carries, in kbit/s, 0: what links are shaped to, 1 Gbit/s if "
        "they are not",
        least=0,
        most=10**9,
        default=0,
    ),
    "relay": IntegerParameter(
        meaning="a bypassed flow goes 0: to any server of the switch; 1: over another's link of "
        "the level; 2: to any "
        "third sub-network",
        least=0,
        most=2,
        default=2,
    ),
    "step_percent": IntegerParameter(
        meaning="available bandwidth that a bypass must gain, in % of that",
        least=1,
        most=100,
        default=5,
    ),
    "refresh_ms": IntegerParameter(
        meaning="time between probes of a flow in use, in ms", least=10, most=60_000, default=1000
    ),
    "refreshes": IntegerParameter(
        meaning="such times that servers keep a flow that is not probed again",
        least=2,
        most=100,
        default=3,
    ),
    "refreshes_per_s": IntegerParameter(
        meaning="flows that a server probes again at most, per s", least=1, most=10_000, default=5
    ),
    "probes_per_s": IntegerParameter(
        meaning="probes that a server sends at most, per s", least=1, most=100_000, default=100
    ),
    "probe_ms": IntegerParameter(
        meaning="how long an answer may take, in ms", least=1, most=10_000, default=200
    ),
    "idle_s": IntegerParameter(
        meaning="how long an unused flow is remembered, in s", least=1, most=3600, default=10
    ),
}


def check(topology: Topology, options: Options) -> None:
    """ValueError unless servers have two ports, as TAR takes them to have."""
    for_servers("tar", topology)
    if topology.family != "ficonn":
        raise ValueError(
            f"scheme tar needs a ficonn, whose servers have two ports, not {topology.spec}"
        )


def configure(topology: Topology, options: Options, link_kbps: int) -> dict[int, NodeConfig]:
    """Every server knows DR's next hop for each prefix, and what its links carry."""
    known = {**options, "capacity_kbps": options["capacity_kbps"] or link_kbps}
    return node_configs(
        topology, "tar", __name__, known, candidates=candidates, needs=(FlowRewrite(),)
    )


def machine(config: NodeConfig, incarnation: int) -> StateMachine:
    """TAR at one server."""
    assert config.network
    neighbourhood = parameters.neighbourhood(config, incarnation)
    return TarRouting(
        neighbourhood,
        config.network,
        config.candidates,
        settings(config.options),
        incarnation=incarnation,
    )


def settings(options: Options) -> TarSettings:
    """Capacity, probes and their rates, as `options` give them."""
    return TarSettings(
        relay=options["relay"],
        capacity_kbps=options["capacity_kbps"],
        gain_kbps=options["capacity_kbps"] * options["step_percent"] // 100,
        refresh_s=options["refresh_ms"] / 1000,
        refreshes=options["refreshes"],
        refreshes_per_s=options["refreshes_per_s"],
        probes_per_s=options["probes_per_s"],
        probe_s=options["probe_ms"] / 1000,
        idle_s=options["idle_s"],
    )


def path(topology: Topology, options: Options, src: int, dst: int) -> list[RoutedPath]:
    """The path of a flow where nothing is loaded, by the first of its source's probes that
    arrives."""
    check(topology, options)
    network = for_servers("tar", topology)
    down = dead_channels(topology, network)
    for attempt in range(ATTEMPTS):
        relay = options["relay"]
        found, arrives = tar.route(
            network.rule, network.t, down, src, dst, relay=relay, attempt=attempt
        )
        if arrives:
            return [RoutedPath(tuple(found))]
    return []


def connects_pings(topology: Topology, options: Options, src: int, dst: int) -> bool:
    """Return True if one of the probes for pings of `src` to `dst` arrives over idle links."""
    network, address = for_servers("tar", topology), topology.naming.address
    down = dead_channels(topology, network)
    flow = tar.number(*FiveTuple(address(src), address(dst), ICMP, 0))
    for attempt in range(ATTEMPTS):
        _, arrives = tar.route(
            network.rule,
            network.t,
            down,
            src,
            dst,
            relay=options["relay"],
            flow=flow,
            attempt=attempt,
        )
        if arrives:
            return True
    return False


SCHEMES = (
    Scheme(
        name="tar",
        summary="traffic-aware routing (TAR): each flow's path is set up by a probe that "
        "avoids busy links",
        source="FiConn, ToN 2011; CCRDN 4.2.3",
        parameters=parameters.HELLO | parameters.DAMPING | OWN,
        check=check,
        configure=configure,
        machine=machine,
        path=path,
        needs=frozenset({FlowRewrite}),
        connects=connects_pings,
    ),
)
