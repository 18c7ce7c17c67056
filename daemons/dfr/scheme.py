"""DFR, fault-tolerant routing: link state in a scope, local reroutes beyond (CCRDN 4.2.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.daemons.control import parameters
from weft.daemons.core.capabilities import PrefixRewrite
from weft.daemons.core.contract import StateMachine
from weft.daemons.core.node_config import NodeConfig, Options, node_configs
from weft.daemons.core.scheme import RoutedPath, Scheme, arrives_by, for_servers
from weft.daemons.dfr import routing
from weft.daemons.dfr import routing as dfr
from weft.daemons.dfr.daemon import DfrRouting
from weft.daemons.dfr.routing import Dfr
from weft.daemons.routing.first_octets import first_octet
from weft.daemons.routing.scope import dead_channels
from weft.topologies.core.family import IntegerParameter
from weft.topologies.recursive.ccrdn import Ccrdn

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

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
    nodes, arrives = dfr.route(network.rule, network.t, settings(network, options), down, src, dst)
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
