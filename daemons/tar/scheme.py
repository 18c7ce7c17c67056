"""TAR, traffic-aware routing on FiConn (CCRDN 4.2.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.daemons.control import parameters
from weft.daemons.core.actions import FiveTuple
from weft.daemons.core.contract import FlowRewrite, StateMachine
from weft.daemons.core.node_config import NodeConfig, Options, node_configs, settings_of
from weft.daemons.core.scheme import RoutedPath, Scheme, for_servers
from weft.daemons.routing.candidates import candidates
from weft.daemons.routing.shortest import dead_channels
from weft.daemons.tar import messages
from weft.daemons.tar import routing as tar
from weft.daemons.tar.daemon import TarRouting
from weft.daemons.tar.flows import ATTEMPTS, TarSettings
from weft.topologies.core.family import IntegerParameter

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

ICMP = 1  # IP protocol number
OWN = {
    "capacity_kbps": IntegerParameter(
        "capacity of a link, in kbit/s; 0: its shaped rate, or 1 Gbit/s without shaping",
        0,
        10**9,
        default=0,
    ),
    "relay": IntegerParameter(
        "a bypassed flow goes 0: to any server of the switch; 1: over another server's "
        "link of the level; 2: to any third sub-network",
        0,
        2,
        default=2,
    ),
    "step_percent": IntegerParameter(
        "available bandwidth that a bypass must gain, in % of the capacity", 1, 100, default=5
    ),
    "refresh_ms": IntegerParameter(
        "time between probes of an active flow, in ms", 10, 60_000, default=1000
    ),
    "refreshes": IntegerParameter(
        "refresh intervals after which a flow without a probe expires", 2, 100, default=3
    ),
    "refreshes_per_s": IntegerParameter(
        "maximum rate of refreshed flows, per s", 1, 10_000, default=5
    ),
    "probes_per_s": IntegerParameter(
        "maximum rate of a server's probes, per s", 1, 100_000, default=100
    ),
    "probe_ms": IntegerParameter("maximum time for an answer, in ms", 1, 10_000, default=200),
    "idle_s": IntegerParameter(
        "time after which an unused flow is forgotten, in s", 1, 3600, default=10
    ),
}


def check(topology: Topology, options: Options) -> None:
    """Raise ValueError unless `topology` is a FiConn: TAR bypasses the second port of a server."""
    if topology.server_centric and topology.family != "ficonn":
        raise ValueError(
            f"scheme tar needs a ficonn, where a server has two ports and one link joins any two "
            f"sub-networks; {topology.spec} is none"
        )
    for_servers("tar", topology)


def configure(topology: Topology, options: Options, link_kbps: int) -> dict[int, NodeConfig]:
    """Return configurations with DR's next hop for each prefix and the capacity of links."""
    full_options = {**options, "capacity_kbps": options["capacity_kbps"] or link_kbps}
    return node_configs(
        topology, "tar", __name__, full_options, candidates=candidates, needs=(FlowRewrite(),)
    )


def machine(config: NodeConfig, incarnation: int) -> StateMachine:
    """Return the state machine of TAR for one server."""
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
    """Return the settings in `options`, in s, kbit/s and per s."""
    gain_kbps = options["capacity_kbps"] * options["step_percent"] // 100
    return settings_of(TarSettings, options, gain_kbps=gain_kbps)


def path(topology: Topology, options: Options, src: int, dst: int) -> list[RoutedPath]:
    """Return the path of a flow on idle links, set up by the first probe that arrives."""
    check(topology, options)
    return _probed(topology, options, src, dst, flow=0)


def connects_pings(topology: Topology, options: Options, src: int, dst: int) -> bool:
    """Return True if one of the probes for pings of `src` to `dst` arrives over idle links."""
    address = topology.naming.address
    flow = tar.flow_hash(*FiveTuple(address(src), address(dst), ICMP, 0))
    return bool(_probed(topology, options, src, dst, flow))


def _probed(
    topology: Topology, options: Options, src: int, dst: int, flow: int
) -> list[RoutedPath]:
    """Return the path of the first probe that arrives for the flow with hash `flow`."""
    network = for_servers("tar", topology)
    rule, t, relay = network.rule, network.t, options["relay"]
    down = dead_channels(topology, network)
    for attempt in range(ATTEMPTS):
        nodes, arrives = tar.route(rule, t, down, src, dst, relay=relay, flow=flow, attempt=attempt)
        if arrives:
            return [RoutedPath(tuple(nodes))]
    return []


SCHEMES = (
    Scheme(
        name="tar",
        summary="traffic-aware routing (TAR): a probe that avoids busy links sets up each "
        "flow's path",
        source="FiConn, ToN 2011; CCRDN 4.2.3",
        parameters=parameters.HELLO | parameters.DAMPING | OWN,
        check=check,
        configure=configure,
        machine=machine,
        path=path,
        needs=frozenset({FlowRewrite}),
        messages=messages.FORMATS,
        connects=connects_pings,
    ),
)
