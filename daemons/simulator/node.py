"""Simulated router: its state machine, forwarding table and capabilities."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TypeVar

from weft.daemons.core.actions import (
    Action,
    FiveTuple,
    Handler,
    Hop,
    SetRoute,
    handler_of,
    handlers_of,
)
from weft.daemons.core.capabilities import FlowPlacement
from weft.daemons.core.contract import DaemonEvent, StateMachine
from weft.daemons.core.node_config import NodeConfig
from weft.daemons.simulator.capabilities import Simulated, simulated
from weft.topologies.core.address import Prefix

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
