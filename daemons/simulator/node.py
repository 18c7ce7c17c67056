"""Simulated router: its state machine, forwarding table and capabilities.

Capabilities are those of daemons/core/contract.py.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from math import inf
from typing import Any, TypeVar

from weft.daemons.core.actions import (
    Action,
    FiveTuple,
    Handler,
    Hop,
    SetFlowPort,
    SetFlowRewrite,
    SetPrefixRewrite,
    SetQueueState,
    SetRoute,
    SetSourceRewrite,
    handler_of,
    handlers_of,
)
from weft.daemons.core.contract import (
    Capability,
    DaemonEvent,
    DestinationInUse,
    FlowInUse,
    FlowPlacement,
    FlowRewrite,
    LinkRates,
    PrefixRewrite,
    QueueState,
    SourceRewrite,
    StateMachine,
)
from weft.daemons.core.node_config import NodeConfig
from weft.daemons.routing import route_addresses
from weft.topologies.core.address import Prefix


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
            route_addresses.address(address, route_addresses.DIRECT) if self.rewrites else address
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
                    address = route_addresses.with_octet(address, octet)
                    break
        return address


class FlowRewrites(Rewrites):
    """First octet of packets by flow."""

    actions = (SetFlowRewrite,)

    def passing(self, address: int, flow: FiveTuple) -> int:
        address = self.leaving(address)
        octet = self.values.get(flow)
        return address if octet is None else route_addresses.with_octet(address, octet)

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
    arrivals: input port of each incoming flow, with the times of its first and last packet there.
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


SimulatedKind = TypeVar("SimulatedKind", bound=Simulated)


class SimulatedFib:
    """Forwarding table; the longest prefix wins."""

    def __init__(self) -> None:
        self.routes: dict[Prefix, tuple[Hop, ...]] = {}
        self._lengths: list[int] = []  # of prefixes, longest first
        self.changes = 0
        self._cache: dict[int, tuple[Hop, ...]] = {}  # look-ups since the last change

    def set(self, prefix: Prefix, hops: tuple[Hop, ...]) -> None:
        self.routes[prefix] = hops
        self._changed()
        if prefix.length not in self._lengths:
            self._lengths = sorted([prefix.length, *self._lengths], reverse=True)

    def remove(self, prefix: Prefix) -> None:
        """Remove the route to `prefix`."""
        self.routes.pop(prefix, None)
        self._changed()

    def _changed(self) -> None:
        self.changes += 1
        self._cache.clear()

    def lookup(self, address: int) -> tuple[Hop, ...]:
        """Return the hops for `address`; none without a route, or with an unreachable one."""
        hops = self._cache.get(address)
        if hops is None:
            hops = self._cache[address] = self._longest(address)
        return hops

    def _longest(self, address: int) -> tuple[Hop, ...]:
        for length in self._lengths:
            hops = self.routes.get(Prefix(address >> (32 - length) << (32 - length), length))
            if hops is not None:
                return hops
        return ()


class Node:
    """Node between two losses of power.

    incarnation: of its last daemon.
    protocol: its state machine; None without a daemon.
    powered: True if it forwards packets.
    inherited: prefixes that an earlier daemon has set, and the present one has not.
    reported_s: time of the last event about each destination.
    tick_s: time of the valid tick in the event queue.
    ticks: time of the last tick, and number of ticks at that time.
    unread: payload, port and arrival time of waiting packets.
    read_s: time at which its daemon read last.
    garbage: number of malformed packets.
    stalled_s: time until which its process does not run.
    """

    def __init__(self, config: NodeConfig, incarnation: int = 0) -> None:
        self.config = config
        self.incarnation = incarnation
        self.protocol: StateMachine | None = None
        self.powered = False
        self.fib = SimulatedFib()
        self.inherited: set[Prefix] = set()
        self.capabilities = [simulated(need) for need in config.needs]
        self.looks_at_flows = any(isinstance(need, FlowPlacement) for need in config.needs)
        self.reported_s: dict[int, float] = {}
        self.tick_s = inf
        self.ticks = (0.0, 0)
        self.unread: list[tuple[bytes, int, float]] = []
        self.read_s = 0.0
        self.garbage = 0
        self.stalled_s = -inf
        self._handlers: dict[type[Action], Handler] = handlers_of(self.capabilities)

    def take_over(self, protocol: StateMachine) -> None:
        """Run `protocol` as the daemon: it inherits routes, and empty rewrites, as on Linux."""
        self.protocol = protocol
        self.powered = True
        self.inherited = set(self.fib.routes)
        self.unread = []
        self.capabilities = [
            simulated(need) if old.rewrites else old
            for need, old in zip(self.config.needs, self.capabilities, strict=True)
        ]
        self._handlers = handlers_of(self.capabilities)

    def sweep(self) -> None:
        """Remove the routes that the present daemon did not set itself."""
        for prefix in self.inherited:
            self.fib.remove(prefix)
        self.inherited = set()

    def capability(self, kind: type[SimulatedKind]) -> SimulatedKind:
        """Return the capability of this kind; ValueError if the node has none."""
        for capability in self.capabilities:
            if isinstance(capability, kind):
                return capability
        raise ValueError(f"node {self.config.node} has no {kind.__name__}")

    def carry_out(self, action: Action) -> bool:
        """Perform `action`, which concerns this node alone; return True if it changed anything.

        Raises:
            TypeError: an action without a handler.
        """
        if not isinstance(action, SetRoute):
            handler_of(self._handlers, action)((action,))
            return True
        self.inherited.discard(action.prefix)
        if action.unless_set and action.prefix in self.fib.routes:
            return False
        self.fib.set(action.prefix, action.hops)
        return True

    def leaving(self, address: int) -> int:
        """Return the address that a packet of this node for `address` carries when it leaves."""
        for capability in self.capabilities:
            address = capability.leaving(address)
        return address

    def passing(self, address: int, flow: FiveTuple) -> int:
        """Return the address by which a packet of `flow` with `address` is routed here."""
        for capability in self.capabilities:
            address = capability.passing(address, flow)
        return address

    def refuses(self, address: int) -> bool:
        """Return True if it rewrites its own packets, and has no route for those to `address`."""
        rewrites = any(capability.rewrites for capability in self.capabilities)
        return rewrites and not self.fib.lookup(address)

    def sent(self, flow: FiveTuple) -> Sequence[DaemonEvent]:
        """Return the events of a packet of `flow` that it sent."""
        events = [capability.sent(flow) for capability in self.capabilities]
        return [event for event in events if event]
