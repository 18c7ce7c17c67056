"""One simulated node that routes: its state machine, its forwarding table, and what it can do beside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import TypeVar

from weft.daemons.core.actions import Action, Flow, Handler, Hop, Note, Send, SetRoute, handler_of, handlers_of
from weft.daemons.core.contract import StateMachine
from weft.daemons.core.events import Event
from weft.daemons.core.node_config import NodeConfig
from weft.daemons.simulator.capabilities import Simulated, simulated
from weft.topologies.core.address import Prefix

Kind = TypeVar("Kind", bound=Simulated)


class Fib:
    """A forwarding table: the longest prefix wins."""

    def __init__(self) -> None:
        self.routes: dict[Prefix, tuple[Hop, ...]] = {}
        self._lengths: list[int] = []  # of prefixes, longest first

    def set(self, prefix: Prefix, hops: tuple[Hop, ...]) -> None:
        self.routes[prefix] = hops
        if prefix.length not in self._lengths:
            self._lengths = sorted([prefix.length, *self._lengths], reverse=True)

    def lookup(self, address: int) -> tuple[Hop, ...]:
        """The hops for `address`; none if there is no route, or an unreachable one."""
        for length in self._lengths:
            hops = self.routes.get(Prefix(address >> (32 - length) << (32 - length), length))
            if hops is not None:
                return hops
        return ()


class Node:
    """A node as it is between a loss of power and the next.

    protocol: its state machine, None while it has no power.
    """

    def __init__(self, config: NodeConfig, incarnation: int = 0) -> None:
        self.config = config
        self.incarnation = incarnation  # of its last daemon
        self.protocol: StateMachine | None = None
        self.fib = Fib()
        self.capabilities = [simulated(need) for need in config.needs]
        self.told_s: dict[int, float] = {}  # by destination, when the daemon was told that it is in use
        self.tick_s = inf  # when the tick event lies in the queue that counts
        self.unread: list[tuple[bytes, int, float]] = []  # payload, port, when it came
        self.garbage = 0  # packets that its daemon dropped
        self.stalled_s = -inf  # until when its process does not run
        self._handlers: dict[type[Action], Handler] = handlers_of(self.capabilities)

    def capability(self, kind: type[Kind]) -> Kind:
        """The one of this kind; ValueError if the node has none."""
        for each in self.capabilities:
            if isinstance(each, kind):
                return each
        raise ValueError(f"node {self.config.node} has no {kind.__name__}")

    def own(self, actions: Iterable[Action]) -> Iterable[Action]:
        """Carry `actions` out, in order; those that reach beyond this node are handed over instead, each when its turn
        comes.  TypeError if nobody carries one out."""
        for action in actions:
            if isinstance(action, Send | Note):
                yield action
            elif isinstance(action, SetRoute):
                if not (action.unless_set and action.prefix in self.fib.routes):
                    self.fib.set(action.prefix, action.hops)
                    yield action
            else:
                handler_of(self._handlers, action)((action,))
                yield action

    def leaving(self, address: int) -> int:
        """What a packet of this node's own for `address` bears when it leaves."""
        for capability in self.capabilities:
            address = capability.leaving(address)
        return address

    def passing(self, address: int, flow: Flow) -> int:
        """What a packet of `flow` that bears `address` bears when its route is looked up here."""
        for capability in self.capabilities:
            address = capability.passing(address, flow)
        return address

    def rewrites(self) -> bool:
        """Whether its own packets leave with addresses that are no server's own."""
        return any(capability.rewrites for capability in self.capabilities)

    def sent(self, flow: Flow) -> Sequence[Event]:
        """What its daemon is told when it has sent a packet of `flow`."""
        told = [capability.sent(flow) for capability in self.capabilities]
        return [event for event in told if event]
