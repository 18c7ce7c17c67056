"""Capabilities: needs of a scheme beyond sockets, a clock and a forwarding table, for one node.

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

from dataclasses import dataclass
from math import floor


class Capability:
    """A kind of capability of a runtime."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class SourceRewrite(Capability):
    """Rewrite the destination of a server's own packets, address by address.

    addresses: number of first octets of rewritten addresses, from 64 on
        (daemons/routing/proxy_addresses.py).
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
