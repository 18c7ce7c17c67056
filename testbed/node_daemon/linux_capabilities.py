"""What stands on Linux for each capability that a node's scheme needs
(daemons/core/capabilities.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from weft.daemons.core.capabilities import (
    Capability,
    FlowPlacement,
    FlowRewrite,
    LinkRates,
    PrefixRewrite,
    QueueState,
    SourceRewrite,
)
from weft.testbed.data_plane import link_rates
from weft.testbed.data_plane.capability import LinuxCapability
from weft.testbed.data_plane.flow_placement import LinuxFlowPlacements
from weft.testbed.data_plane.flow_rewrite import FlowRewriting
from weft.testbed.data_plane.plane_tables import SwitchFlows, SwitchQueueState
from weft.testbed.data_plane.prefix_rewrite import PrefixRewriting
from weft.testbed.data_plane.queue_state import LinuxQueueStates
from weft.testbed.data_plane.source_rewrite import SourceRewriting
from weft.testbed.data_plane.transit_rewrite import TransitRewriting
from weft.testbed.linux import netlink
from weft.testbed.linux.node_interfaces import NodeInterfaces


@dataclass(frozen=True)
class CapabilitySite:
    """Where a capability is to be.

    routes: a socket in the node's namespace, which stays its owner's.
    watched: by port that leads to another router, the index of its interface.
    queue_state, flows: of a switch with a data plane, what tells how crowded it is, and the flows
        in its table.
    transit: of a server whose ports have the program that rewrites packets in transit, its part of
        the maps.
    """

    interfaces: NodeInterfaces
    routes: netlink.Socket
    watched: Mapping[int, int]
    queue_state: SwitchQueueState | None
    flows: SwitchFlows | None
    transit: TransitRewriting | None

    def port_of(self) -> dict[int, int]:
        """The number of each port, by the index of its interface."""
        return {interface.ifindex: port for port, interface in self.interfaces.ports.items()}


def _source(need: SourceRewrite, at: CapabilitySite) -> LinuxCapability:
    return SourceRewriting(at.interfaces.address, need.addresses, at.routes, at.port_of())


def _prefix(need: PrefixRewrite, at: CapabilitySite) -> LinuxCapability:
    return PrefixRewriting(
        at.interfaces.address, need.octets, need.ttl, at.routes, _transit(need, at)
    )


def _flow(need: FlowRewrite, at: CapabilitySite) -> LinuxCapability:
    return FlowRewriting(at.interfaces.address, at.routes, at.port_of(), _transit(need, at))


def _queues(need: QueueState, at: CapabilitySite) -> LinuxCapability:
    if at.queue_state is None:
        raise ValueError(
            f"{at.interfaces.name} has no data plane, whose states its scheme is to set"
        )
    return LinuxQueueStates(at.queue_state)


def _placements(need: FlowPlacement, at: CapabilitySite) -> LinuxCapability:
    if at.flows is None:
        raise ValueError(
            f"{at.interfaces.name} has no data plane, in whose table its scheme is to place flows"
        )
    return LinuxFlowPlacements(
        need, at.flows, {port: each.ifindex for port, each in at.interfaces.ports.items()}
    )


def _rates(need: LinkRates, at: CapabilitySite) -> LinuxCapability:
    return link_rates.LinuxLinkRates(at.watched, need.rate_bps, at.routes)


def _transit(need: Capability, at: CapabilitySite) -> TransitRewriting:
    if at.transit is None:
        raise ValueError(
            f"{at.interfaces.name} lacks the program that {type(need).__name__} needs at its ports"
        )
    return at.transit


MAKERS: Mapping[type[Capability], Callable[[Any, CapabilitySite], LinuxCapability]] = {
    SourceRewrite: _source,
    PrefixRewrite: _prefix,
    FlowRewrite: _flow,
    QueueState: _queues,
    LinkRates: _rates,
    FlowPlacement: _placements,
}


def make(need: Capability, at: CapabilitySite) -> LinuxCapability:
    """What stands for `need`, opened in the namespace of the calling thread, which is the node's;
    ValueError if nothing does."""
    if type(need) not in MAKERS:
        raise ValueError(f"Linux has no {type(need).__name__}")
    return MAKERS[type(need)](need, at)
