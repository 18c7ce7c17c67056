"""Capabilities of simulated nodes beyond forwarding, one class for each kind in
daemons/core/capabilities.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.daemons.core.actions import (
    Action,
    FiveTuple,
    SetFlowPort,
    SetFlowRewrite,
    SetPrefixRewrite,
    SetQueueState,
    SetSourceRewrite,
)
from weft.daemons.core.capabilities import (
    Capability,
    FlowPlacement,
    FlowRewrite,
    LinkRates,
    PrefixRewrite,
    QueueState,
    SourceRewrite,
)
from weft.daemons.core.events import DaemonEvent, DestinationInUse, FlowInUse
from weft.daemons.routing import first_octets, proxy_addresses
from weft.topologies.core.address import Prefix


class Simulated:
    """Capability without effect; base of the others.

    actions: kinds of actions that apply() performs.
    rewrites: True if packets carry addresses other than their destination's.
    """

    actions: Sequence[type[Action]] = ()
    rewrites = False

    def apply(self, actions: Sequence[Any]) -> None:
        """Perform actions, all of the kinds in `self.actions`."""

    def leaving(self, address: int) -> int:
        """Return the address that a packet of this node for `address` carries when it leaves."""
        return (
            proxy_addresses.address(address, proxy_addresses.DIRECT) if self.rewrites else address
        )

    def passing(self, address: int, flow: FiveTuple) -> int:
        """Return the address by which a packet with `address` is routed here."""
        return address

    def sent(self, flow: FiveTuple) -> DaemonEvent | None:
        """Return the event of a packet of `flow` that this node sent; None without one."""
        return None


class SourceRewrites(Simulated):
    """Rewritten destination address of this node's own packets, by destination."""

    actions = (SetSourceRewrite,)
    rewrites = True

    def __init__(self, config: SourceRewrite) -> None:
        self._steered: dict[int, int] = {}

    def apply(self, actions: Sequence[Any]) -> None:
        for action in actions:
            if action.rewritten is None:
                self._steered.pop(action.destination, None)
            else:
                self._steered[action.destination] = action.rewritten

    def leaving(self, address: int) -> int:
        return self._steered.get(address) or super().leaving(address)

    def sent(self, flow: FiveTuple) -> DaemonEvent:
        return DestinationInUse(flow.destination)


class PrefixRewrites(Simulated):
    """First octet of packets by prefix; the result may match a second rule."""

    actions = (SetPrefixRewrite,)
    rewrites = True

    def __init__(self, config: PrefixRewrite) -> None:
        self._octets: dict[Prefix, int] = {}

    def apply(self, actions: Sequence[Any]) -> None:
        for action in actions:
            if action.first_octet is None:
                self._octets.pop(action.prefix, None)
            else:
                self._octets[action.prefix] = action.first_octet

    def passing(self, address: int, flow: FiveTuple) -> int:
        for _ in range(2):
            for prefix, octet in self._octets.items():
                if prefix.holds(address):
                    address = first_octets.with_octet(address, octet)
                    break
        return address


class FlowRewrites(Simulated):
    """First octet of packets by flow."""

    actions = (SetFlowRewrite,)
    rewrites = True

    def __init__(self, config: FlowRewrite) -> None:
        self.flows: dict[FiveTuple, int] = {}

    def apply(self, actions: Sequence[Any]) -> None:
        for action in actions:
            if action.first_octet is None:
                self.flows.pop(action.flow, None)
            else:
                self.flows[action.flow] = action.first_octet

    def passing(self, address: int, flow: FiveTuple) -> int:
        address = self.leaving(address)
        octet = self.flows.get(flow)
        return address if octet is None else first_octets.with_octet(address, octet)

    def sent(self, flow: FiveTuple) -> DaemonEvent:
        return FlowInUse(flow)


class SimulatedQueueStates(Simulated):
    """State of a switch; simulated queues are empty and never require another."""

    actions = (SetQueueState,)

    def __init__(self, config: QueueState) -> None:
        self.state = 0

    def apply(self, actions: Sequence[Any]) -> None:
        self.state = actions[-1].state


class SimulatedFlowPlacements(Simulated):
    """Ports of flows at a switch; flows.py has the flows.

    ports: port of each placed flow, and the time of its placement.
    turn: period of the last report.
    seen: input port of each incoming flow, with the times of its first and last packet there.
    shared: port by destination, for flows that share a port.
    """

    actions = (SetFlowPort,)

    def __init__(self, config: FlowPlacement) -> None:
        self.config = config
        self.ports: dict[FiveTuple, tuple[int, float]] = {}
        self.turn: int | None = None
        self.seen: dict[FiveTuple, tuple[int, float, float]] = {}
        self.shared: dict[int, int] = {}
        self.now = 0.0

    def apply(self, actions: Sequence[Any]) -> None:
        for action in actions:
            self.ports[action.flow] = action.port, self.now
            if self.config.by_destination:
                self.shared[action.flow.destination] = action.port


class SoundLinks(Simulated):
    """Links without faults of rate."""

    def __init__(self, config: LinkRates) -> None:
        pass


KINDS: Mapping[type[Capability], Callable[..., Simulated]] = {
    SourceRewrite: SourceRewrites,
    PrefixRewrite: PrefixRewrites,
    FlowRewrite: FlowRewrites,
    QueueState: SimulatedQueueStates,
    LinkRates: SoundLinks,
    FlowPlacement: SimulatedFlowPlacements,
}


def simulated(config: Capability) -> Simulated:
    """Return the simulated capability for `config`; ValueError if there is none."""
    if type(config) not in KINDS:
        raise ValueError(f"the simulator has no {type(config).__name__}")
    return KINDS[type(config)](config)
