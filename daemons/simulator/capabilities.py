"""What simulated nodes can do beyond forwarding (daemons/core/capabilities.py), a class for each
kind.

actions   the kinds that apply() carries out
leaving   what a packet of this node's own carries when it leaves, given the address that it is for
passing   what a packet carries when its route is looked up here, be it this node's own or another's
sent      what the daemon is told when this node has sent a packet
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
    """A capability that changes nothing and tells nothing."""

    actions: Sequence[type[Action]] = ()
    rewrites = False  # whether packets carry other addresses than those that they are for

    def apply(self, actions: Sequence[Any]) -> None:
        """Carry out these actions, all of the kinds `actions`."""

    def leaving(self, address: int) -> int:
        """What a packet of this node's own for `address` carries when it leaves."""
        return (
            proxy_addresses.address(address, proxy_addresses.DIRECT) if self.rewrites else address
        )

    def passing(self, address: int, flow: FiveTuple) -> int:
        """What a packet that carries `address` carries when its route is looked up."""
        return address

    def sent(self, flow: FiveTuple) -> DaemonEvent | None:
        """What the daemon is told when this node has sent a packet of `flow`."""
        return None


class SourceRewrites(Simulated):
    """By destination, the address that this node's own packets for it carry."""

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
    """The first octet that packets for a prefix carry from here on; what comes out may be changed
    once more."""

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
    """The first octet that packets of a flow carry from here on."""

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
    """The state of a switch of LBSP; there are no queues that would call for another."""

    actions = (SetQueueState,)

    def __init__(self, config: QueueState) -> None:
        self.state = 0

    def apply(self, actions: Sequence[Any]) -> None:
        self.state = actions[-1].state


class SimulatedFlowPlacements(Simulated):
    """The port of each flow that has been given one; flows.py tells which flows there are.

    turn: the period of the last look.  seen: of each flow that came in, the port, since when, and
        when that was last.
    shared: by destination, the port of flows that go together, where they do.
    """

    actions = (SetFlowPort,)

    def __init__(self, config: FlowPlacement) -> None:
        self.config = config
        self.ports: dict[FiveTuple, tuple[int, float]] = {}  # and since when
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
    """Every link carries what it should."""

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
    """What stands for this capability; ValueError if nothing does."""
    if type(config) not in KINDS:
        raise ValueError(f"the simulator has no {type(config).__name__}")
    return KINDS[type(config)](config)
