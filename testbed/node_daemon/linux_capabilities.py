"""Implementations on Linux of the capabilities that schemes need (daemons/core/contract.py).

Many rest on maps of the eBPF programs at a network's ports; each node has its parts of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from weft.daemons.core.contract import (
    Capability,
    FlowPlacement,
    FlowRewrite,
    LinkRates,
    PrefixRewrite,
    QueueState,
    SourceRewrite,
)
from weft.testbed.data_plane import capabilities
from weft.testbed.data_plane.capabilities import (
    LinuxCapability,
    LinuxFlowPlacements,
    LinuxQueueStates,
)
from weft.testbed.data_plane.flow_rewrite import FlowRewriting
from weft.testbed.data_plane.groups import Groups
from weft.testbed.data_plane.plane_tables import (
    LongQueues,
    PlaneTables,
    SwitchFlows,
    SwitchQueueState,
    of_program,
)
from weft.testbed.data_plane.prefix_rewrite import PrefixRewriting
from weft.testbed.data_plane.source_rewrite import SourceRewriting
from weft.testbed.data_plane.transit_rewrite import TransitMaps, TransitRewriting
from weft.testbed.linux import netlink
from weft.testbed.linux.interface import NodeInterfaces


class NodeMaps(NamedTuple):
    """A node's parts of the maps of the eBPF programs at its ports.

    groups, queue_state, flows, long_queues: forwarding groups, queue states, flow table and
        reports about queues of a switch with a data plane.
    transit: of a server with the program that rewrites packets in transit.
    """

    groups: Groups | None = None
    queue_state: SwitchQueueState | None = None
    flows: SwitchFlows | None = None
    long_queues: LongQueues | None = None
    transit: TransitRewriting | None = None


@dataclass(frozen=True)
class CapabilitySite:
    """The node at which a capability is opened.

    routes: a netlink socket in the node's namespace; its owner closes it.
    watched: the index of the interface at each port that leads to another router.
    maps: the node's parts of the maps.
    """

    interfaces: NodeInterfaces
    routes: netlink.Socket
    watched: Mapping[int, int]
    maps: NodeMaps

    def port_of(self) -> dict[int, int]:
        """Return the number of each port, by the index of its interface."""
        return {interface.ifindex: port for port, interface in self.interfaces.ports.items()}


def _source(need: SourceRewrite, site: CapabilitySite) -> LinuxCapability:
    return SourceRewriting(site.interfaces.address, need.addresses, site.routes, site.port_of())


def _prefix(need: PrefixRewrite, site: CapabilitySite) -> LinuxCapability:
    return PrefixRewriting(
        site.interfaces.address, need.octets, need.ttl, site.routes, _transit(need, site)
    )


def _flow(need: FlowRewrite, site: CapabilitySite) -> LinuxCapability:
    return FlowRewriting(site.interfaces.address, site.routes, site.port_of(), _transit(need, site))


def _queues(need: QueueState, site: CapabilitySite) -> LinuxCapability:
    if site.maps.queue_state is None:
        raise ValueError(
            f"{site.interfaces.name} has no data plane; its scheme sets queue states there"
        )
    return LinuxQueueStates(site.maps.queue_state)


def _placements(need: FlowPlacement, site: CapabilitySite) -> LinuxCapability:
    if site.maps.flows is None:
        raise ValueError(f"{site.interfaces.name} has no data plane; its scheme places flows there")
    ifindexes = {port: interface.ifindex for port, interface in site.interfaces.ports.items()}
    return LinuxFlowPlacements(need, site.maps.flows, ifindexes, site.maps.long_queues)


def _rates(need: LinkRates, site: CapabilitySite) -> LinuxCapability:
    return capabilities.LinuxLinkRates(site.watched, need.rate_bps, site.routes)


def _transit(need: Capability, site: CapabilitySite) -> TransitRewriting:
    if site.maps.transit is None:
        raise ValueError(
            f"{site.interfaces.name} lacks the program of {type(need).__name__} at its ports"
        )
    return site.maps.transit


MAKERS: Mapping[type[Capability], Callable[[Any, CapabilitySite], LinuxCapability]] = {
    SourceRewrite: _source,
    PrefixRewrite: _prefix,
    FlowRewrite: _flow,
    QueueState: _queues,
    LinkRates: _rates,
    FlowPlacement: _placements,
}


def make(need: Capability, site: CapabilitySite) -> LinuxCapability:
    """Open the capability `need` in the namespace of the calling thread, which is the node's.

    Raises:
        ValueError: Linux has no such capability, or the node lacks what it needs.
    """
    if type(need) not in MAKERS:
        raise ValueError(f"Linux has no {type(need).__name__}")
    return MAKERS[type(need)](need, site)


class Programs:
    """The maps of the eBPF programs at a network's ports; they are closed with the process."""

    def __init__(self, data_plane: int | None, first_switch: int, transit: int | None) -> None:
        """Open the maps.

        Args:
            data_plane: id of the data plane's program; None: there is none.
            first_switch: the node that the data plane counts as 0.
            transit: id of the transit program; None: there is none.

        Raises:
            BpfError: no program has such an id.
        """
        self._first_switch = first_switch
        self._tables: PlaneTables | None = None
        self._transit_maps = TransitMaps(transit) if transit is not None else None
        if data_plane is not None:
            self._maps, self._tables = of_program(data_plane)

    def node_maps(self, nodes: Sequence[int]) -> dict[int, NodeMaps]:
        """Return the parts of each of `nodes`, with the forwarding groups as they are now."""
        transit, tables, first = self._transit_maps, self._tables, self._first_switch
        maps = {node: NodeMaps(transit=transit.at(node) if transit else None) for node in nodes}
        if tables:
            for switch, groups in tables.all(node - first for node in nodes).items():
                maps[first + switch] = maps[first + switch]._replace(
                    groups=groups,
                    queue_state=tables.queue_state(switch),
                    flows=tables.flows(switch),
                    long_queues=tables.long_queues(switch),
                )
        return maps

    def descriptors(self) -> list[int]:
        """Return the descriptors of the maps, which a forked process must keep open."""
        maps = (self._tables, self._transit_maps)
        return [fd for owner in maps if owner for fd in owner.descriptors()]
