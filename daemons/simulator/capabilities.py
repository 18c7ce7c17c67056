"""Capabilities of simulated nodes beyond forwarding, as in daemons/core/capabilities.py."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from math import inf
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
from weft.daemons.core.contract import DaemonEvent, DestinationInUse, FlowInUse
from weft.daemons.routing import first_octets, proxy_addresses


class Simulated:
    """Capability without effect; base of the others.

    actions: kinds of actions that apply() performs.
    rewrites: True if packets carry addresses other than their destination's.
    """

    actions: Sequence[type[Action]] = ()
    rewrites = False

    def __init__(self, config: Capability) -> None:
        """Make the capability that `config` describes."""

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


class Rewrites(Simulated):
    """Rewrites by key, set and removed by actions that hold a key and a value, or None."""

    rewrites = True

    def __init__(self, config: Capability) -> None:
        self.values: dict[Any, int] = {}

    def apply(self, actions: Sequence[Any]) -> None:
        for action in actions:
            key, value = (getattr(action, name) for name in action.__match_args__)
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value


class SourceRewrites(Rewrites):
    """Rewritten destination address of this node's own packets, by destination."""

    actions = (SetSourceRewrite,)

    def leaving(self, address: int) -> int:
        return self.values.get(address) or super().leaving(address)

    def sent(self, flow: FiveTuple) -> DaemonEvent:
        return DestinationInUse(flow.destination)


class PrefixRewrites(Rewrites):
    """First octet of packets by prefix; the result may match a second rule."""

    actions = (SetPrefixRewrite,)

    def passing(self, address: int, flow: FiveTuple) -> int:
        for _ in range(2):
            for prefix, octet in self.values.items():
                if prefix.holds(address):
                    address = first_octets.with_octet(address, octet)
                    break
        return address


class FlowRewrites(Rewrites):
    """First octet of packets by flow."""

    actions = (SetFlowRewrite,)

    def passing(self, address: int, flow: FiveTuple) -> int:
        address = self.leaving(address)
        octet = self.values.get(flow)
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
    reported_s: time of the last report of each incoming flow in a long queue.
    """

    actions = (SetFlowPort,)

    def __init__(self, config: FlowPlacement) -> None:
        self.config = config
        self.ports: dict[FiveTuple, tuple[int, float]] = {}
        self.turn: int | None = None
        self.arrivals: dict[FiveTuple, tuple[int, float, float]] = {}
        self.shared: dict[int, int] = {}
        self.reported_s: dict[FiveTuple, float] = {}
        self.now = 0.0

    def apply(self, actions: Sequence[Any]) -> None:
        for action in actions:
            self.ports[action.flow] = action.port, self.now
            if self.config.by_destination:
                self.shared[action.flow.destination] = action.port

    def arrived(self, flow: FiveTuple, port: int) -> tuple[int, float]:
        """Return input port of a flow, and the time of its first packet there."""
        before, since_s, _ = self.arrivals.get(flow, (port, -inf, self.now))
        first_s = since_s if before == port else self.now
        self.arrivals[flow] = port, first_s, self.now
        return port, first_s

    def forget_flows(self, live: Container[FiveTuple]) -> None:
        """Forget the ports and reports of flows that have ended."""
        self.ports = {flow: entry for flow, entry in self.ports.items() if flow in live}
        self.reported_s = {flow: time for flow, time in self.reported_s.items() if flow in live}

    def forget_destinations(self) -> None:
        """Forget the shared ports of destinations without a placed flow."""
        placed = {flow.destination for flow in self.ports}
        self.shared = {key: port for key, port in self.shared.items() if key in placed}


KINDS: Mapping[type[Capability], Callable[..., Simulated]] = {
    SourceRewrite: SourceRewrites,
    PrefixRewrite: PrefixRewrites,
    FlowRewrite: FlowRewrites,
    QueueState: SimulatedQueueStates,
    LinkRates: Simulated,  # no link has a fault of rate
    FlowPlacement: SimulatedFlowPlacements,
}


def simulated(config: Capability) -> Simulated:
    """Return the simulated capability for `config`; ValueError if there is none."""
    if type(config) not in KINDS:
        raise ValueError(f"the simulator has no {type(config).__name__}")
    return KINDS[type(config)](config)
