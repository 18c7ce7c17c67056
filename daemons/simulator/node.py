"""One simulated node that routes: its state machine, its forwarding table, and what it can do
beside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
from weft.daemons.core.capabilities import Capability, FlowPlacement
from weft.daemons.core.contract import StateMachine
from weft.daemons.core.events import DaemonEvent
from weft.daemons.core.node_config import NodeConfig
from weft.daemons.simulator.capabilities import Simulated, simulated
from weft.topologies.core.address import Prefix

SimulatedKind = TypeVar("SimulatedKind", bound=Simulated)


class SimulatedFib:
    """A forwarding table: the longest prefix wins."""

    def __init__(self) -> None:
        self.routes: dict[Prefix, tuple[Hop, ...]] = {}
        self._lengths: list[int] = []  # of prefixes, longest first
        self.changes = 0
        # by address, what has been looked up since the last change
        self._found: dict[int, tuple[Hop, ...]] = {}

    def set(self, prefix: Prefix, hops: tuple[Hop, ...]) -> None:
        self.routes[prefix] = hops
        self._changed()
        if prefix.length not in self._lengths:
            self._lengths = sorted([prefix.length, *self._lengths], reverse=True)

    def remove(self, prefix: Prefix) -> None:
        """Take away the route to `prefix`."""
        self.routes.pop(prefix, None)
        self._changed()

    def _changed(self) -> None:
        self.changes += 1
        self._found.clear()

    def lookup(self, address: int) -> tuple[Hop, ...]:
        """The hops for `address`; none if there is no route, or an unreachable one."""
        found = self._found.get(address)
        if found is None:
            found = self._found[address] = self._longest(address)
        return found

    def _longest(self, address: int) -> tuple[Hop, ...]:
        for length in self._lengths:
            hops = self.routes.get(Prefix(address >> (32 - length) << (32 - length), length))
            if hops is not None:
                return hops
        return ()


class Node:
    """A node as it is between a loss of power and the next.

    protocol: its state machine, None while it has no daemon.
    powered: whether it forwards.
    inherited: what a daemon before the present one has set, and this one has not.
    """

    def __init__(self, config: NodeConfig, incarnation: int = 0) -> None:
        self.config = config
        self.incarnation = incarnation  # of its last daemon
        self.protocol: StateMachine | None = None
        self.powered = False
        self.fib = SimulatedFib()
        self.inherited: set[Prefix] = set()
        self.capabilities = [simulated(need) for need in config.needs]
        self.looks_at_flows = any(isinstance(need, FlowPlacement) for need in config.needs)
        # by destination, when the daemon was told that it is in use
        self.told_s: dict[int, float] = {}
        self.tick_s = inf  # when the tick event lies in the queue that counts
        self.ticks = (0.0, 0)  # when it ticked last, and how often then
        self.unread: list[tuple[bytes, int, float]] = []  # payload, port, when it came
        self.read_s = 0.0  # when its daemon read last
        self.garbage = 0  # packets that its daemon dropped
        self.stalled_s = -inf  # until when its process does not run
        self._handlers: dict[type[Action], Handler] = handlers_of(self.capabilities)

    def take_over(self, protocol: StateMachine) -> None:
        """Have `protocol` for a daemon, which finds the routes that the one before it left, and
        what rewrites packets empty, as on Linux."""
        self.protocol, self.powered = protocol, True
        self.inherited, self.unread = set(self.fib.routes), []
        self.capabilities = [
            simulated(need) if old.rewrites else old for need, old in self._by_need()
        ]
        self._handlers = handlers_of(self.capabilities)

    def _by_need(self) -> Iterable[tuple[Capability, Simulated]]:
        return zip(self.config.needs, self.capabilities, strict=True)

    def sweep(self) -> None:
        """Take away the routes that the present daemon did not set itself."""
        for prefix in self.inherited:
            self.fib.remove(prefix)
        self.inherited = set()

    def capability(self, kind: type[SimulatedKind]) -> SimulatedKind:
        """The one of this kind; ValueError if the node has none."""
        for each in self.capabilities:
            if isinstance(each, kind):
                return each
        raise ValueError(f"node {self.config.node} has no {kind.__name__}")

    def carry_out(self, action: Action) -> bool:
        """Do `action`, which does not reach beyond this node; whether that changed anything.
        TypeError if nobody carries it out."""
        if not isinstance(action, SetRoute):
            handler_of(self._handlers, action)((action,))
            return True
        self.inherited.discard(action.prefix)
        if action.unless_set and action.prefix in self.fib.routes:
            return False
        self.fib.set(action.prefix, action.hops)
        return True

    def leaving(self, address: int) -> int:
        """What a packet of this node's own for `address` carries when it leaves."""
        for capability in self.capabilities:
            address = capability.leaving(address)
        return address

    def passing(self, address: int, flow: FiveTuple) -> int:
        """What a packet of `flow` that carries `address` carries when its route is looked up
        here."""
        for capability in self.capabilities:
            address = capability.passing(address, flow)
        return address

    def rewrites(self) -> bool:
        """Whether its own packets leave with addresses that are no server's own."""
        return any(capability.rewrites for capability in self.capabilities)

    def sent(self, flow: FiveTuple) -> Sequence[DaemonEvent]:
        """What its daemon is told when it has sent a packet of `flow`."""
        told = [capability.sent(flow) for capability in self.capabilities]
        return [event for event in told if event]
