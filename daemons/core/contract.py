"""The contract between a state machine, which decides for one node, and its runtime.

A runtime is Linux (testbed/node_daemon/daemon.py) or the simulator (daemons/simulator).  It calls
the state machine on five occasions; the state machine returns actions (actions.py).  A state
machine never reads a clock, draws a random number or touches a socket, so a test can be its network
and its time.

A turn of the runtime: sleep until `deadline` or until a socket is readable; read the clock, once;
deliver all queued packets in order of arrival; then call tick() if `deadline` has passed.  A
runtime that was starved of processor time thus delivers the neighbours' packets before their
silence is judged.

The runtime performs actions in order, across kinds.  A Send leaves only after all changes before it
are made, because the message may announce them.  A runtime may combine changes as long as no other
node can observe the difference.

A state machine starts with no routes of its own in the forwarding table.  After a restart the
runtime removes the routes that the predecessor left.

Events are reports of a runtime's capabilities to a state machine, beside packets.  The capabilities
that a scheme needs determine its events.  Addresses are IPv4, as integers.

Capabilities are needs of a scheme beyond sockets, a clock and a forwarding table, for one node.
For each kind a runtime has a handler of its actions and a source of its events.  A runtime that
lacks a kind refuses the scheme.

    kind            actions            events
    SourceRewrite   SetSourceRewrite   DestinationInUse, Refused, Measured
    PrefixRewrite   SetPrefixRewrite   none
    FlowRewrite     SetFlowRewrite     FlowInUse, Refused, Measured
    QueueState      SetQueueState      QueuesCall
    LinkRates       none               LinkDegraded
    FlowPlacement   SetFlowPort        FlowsSeen, LongQueue
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor
from typing import Any, NamedTuple, Protocol

from weft.daemons.core.actions import Action, FiveTuple


class DaemonEvent:
    """Something that happened at a node."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class DestinationInUse(DaemonEvent):
    """This server sent a packet of its own to `destination`, the first one or after a pause."""

    destination: int


@dataclass(frozen=True, slots=True)
class FlowInUse(DaemonEvent):
    """This server sent a packet of its own in `flow`, the first one ever or after a pause."""

    flow: FiveTuple


@dataclass(frozen=True, slots=True)
class Refused(DaemonEvent):
    """A server on the path refused a packet of this server's own to `destination`."""

    destination: int


@dataclass(frozen=True, slots=True)
class Measured(DaemonEvent):
    """Measured load of each port, in kbit/s sent."""

    loads: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class QueuesCall(DaemonEvent):
    """The queue lengths of this switch require `state` (LBSP, section 5.1)."""

    state: int


@dataclass(frozen=True, slots=True)
class LinkDegraded(DaemonEvent):
    """The link at `port` carries less than its rate; with degraded=False, its full rate again."""

    port: int
    degraded: bool


class SeenFlow(NamedTuple):
    """A flow in the flow table of a switch.

    port: output port of a flow from a host of this switch; input port of any other flow.
    idle_s: time since its last packet, in s.
    rested_s: time since its port changed, in s.
    """

    flow: FiveTuple
    port: int
    idle_s: float = 0.0
    rested_s: float = 0.0


@dataclass(frozen=True, slots=True)
class FlowsSeen(DaemonEvent):
    """The flow table of a switch, once a period.

    Flows between two hosts of the switch are left out.
    """

    flows: tuple[SeenFlow, ...]


@dataclass(frozen=True, slots=True)
class LongQueue(DaemonEvent):
    """A packet of `flow` joined a queue beyond the threshold (DAR, section 4).

    The data plane is silent about a flow that rests: one that this switch has just moved, or, if it
    is no flow of the switch's own hosts, just reported.

    port: as in SeenFlow.
    """

    flow: FiveTuple
    port: int


class Adjacencies(NamedTuple):
    """Counts of neighbours: expected by the topology, up, and losses so far.

    A node that is a neighbour at two ports counts twice.
    """

    promised: int
    up: int
    lost: int


class StateMachine(Protocol):
    """Decisions of one node.

    Times are in seconds from any origin.  The caller performs the returned actions in order.
    """

    @property
    def deadline(self) -> float:
        """Latest time for the next tick(); read it again after every call."""

    def start(self, now: float) -> Sequence[Action]:
        """Return the first actions.  Called once, before any other method."""

    def receive(self, payload: bytes, port: int, now: float) -> Sequence[Action]:
        """Handle `payload`, which arrived at `port` at time `now`.

        Returns:
            Actions; UNCHANGED means none, and the deadline is as before.

        Raises:
            wire.Garbage: no node of this network can have sent it; the runtime counts and drops it.
        """

    def link_changed(self, port: int, up: bool, now: float) -> Sequence[Action]:
        """Handle gain or loss of carrier at `port`.  Ports count as up before the first call."""

    def event(self, event: DaemonEvent, now: float) -> Sequence[Action]:
        """Handle an event of a capability or of an operator.

        Raises:
            ValueError: the scheme does not use such events.
        """

    def tick(self, now: float) -> Sequence[Action]:
        """Handle the passing of the deadline; an early call does no harm."""

    def slow_down(self, factor: int, now: float) -> Sequence[Action]:
        """Send hellos in `factor` times the configured interval, 1 or more, from now on.

        The runtime lacks processor time for more.
        """

    def converged(self) -> bool:
        """Return True if all expected neighbours are up and all routes by way of them are set."""

    def adjacencies(self) -> Adjacencies:
        """Return the counts of neighbours; called after every change."""

    def status(self) -> dict[str, Any]:
        """Return neighbours, routes and counters for people, JSON-able."""


def useless(event: DaemonEvent) -> ValueError:
    """Return the error that event() raises for an event that the scheme does not use."""
    return ValueError(f"the scheme of this node does not use {event}")


class Capability:
    """A kind of capability of a runtime."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class SourceRewrite(Capability):
    """Rewrite the destination of a server's own packets, address by address.

    addresses: number of first octets of rewritten addresses, from 64 on
        (daemons/routing/route_addresses.py).
    """

    addresses: int


@dataclass(frozen=True, slots=True)
class PrefixRewrite(Capability):
    """Rewrite the first octet of packets that a server sends or forwards, by prefix.

    octets: permitted first octets; the first one is that of packets as they leave their source.
    ttl: most hops of a packet.
    """

    octets: tuple[int, ...]
    ttl: int


@dataclass(frozen=True, slots=True)
class FlowRewrite(Capability):
    """Rewrite the first octet of packets that a server sends or forwards, by flow."""


@dataclass(frozen=True, slots=True)
class QueueState(Capability):
    """Move packets between the link groups of a switch by its state.

    Report the state that its queues require.
    """


@dataclass(frozen=True, slots=True)
class LinkRates(Capability):
    """Report links of a switch that carry less than `rate_bps`."""

    rate_bps: int


@dataclass(frozen=True, slots=True)
class FlowPlacement(Capability):
    """Pin flows of a switch's own hosts to ports, and report the flow table once a period.

    If the selection rule looks at queues, report flows that join long ones at once.

    phase_fraction: time of the report within a period; runtime and state machine share the origin
        of the clock.
    idle_s: a flow that sends nothing for this time is forgotten.
    by_destination: flows to one destination share a port; a new flow takes the port of the others.
    """

    period_s: float
    phase_fraction: float
    idle_s: float
    by_destination: bool = False

    def turn(self, now: float) -> int:
        """Return the number of the period of `now`.

        A time up to a millionth of a period early counts as the next.
        """
        return floor(now / self.period_s - self.phase_fraction + 1e-6)

    def next_s(self, now: float) -> float:
        """Return the start of the next period."""
        return (self.turn(now) + 1 + self.phase_fraction) * self.period_s


IN_TRANSIT = frozenset({PrefixRewrite, FlowRewrite})  # kinds that rewrite forwarded packets
# kinds by which packets carry addresses of no server
REWRITES = frozenset({SourceRewrite}) | IN_TRANSIT
