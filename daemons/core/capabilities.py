"""What a scheme may need of a carrier beyond sockets, a clock and a forwarding table: as data, for one node each.

A carrier has for each of these kinds something that carries out its actions and tells its events; one that has not
refuses the scheme.

    kind            actions            events
    SourceRewrite   SetSourceRewrite   DestinationInUse, Refused, Measured
    PrefixRewrite   SetPrefixRewrite   none
    FlowRewrite     SetFlowRewrite     FlowInUse, Refused, Measured
    QueueState      SetQueueState      QueuesCall
    LinkRates       none               LinkDegraded
    FlowPlacement   SetFlowPort        FlowsSeen
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor


class Capability:
    """A kind of thing that a carrier may be able to do."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class SourceRewrite(Capability):
    """Rewrite the destination of a server's own packets, one address by another.

    addresses: how many first octets the rewritten ones begin with, from 64 on (daemons/routing/proxy_addresses.py).
    """

    addresses: int


@dataclass(frozen=True, slots=True)
class PrefixRewrite(Capability):
    """Rewrite the first octet of packets that a server sends or passes on, by prefix.

    octets: all that addresses of packets may begin with, first that of packets that leave their source.
    ttl: hops that a packet may make.
    """

    octets: tuple[int, ...]
    ttl: int


@dataclass(frozen=True, slots=True)
class FlowRewrite(Capability):
    """Rewrite the first octet of packets that a server sends or passes on, by flow."""


@dataclass(frozen=True, slots=True)
class QueueState(Capability):
    """Move packets between the link groups of a switch by its state, and tell which state its queues call for."""


@dataclass(frozen=True, slots=True)
class LinkRates(Capability):
    """Find out which links of a switch carry less than `rate_bps`."""

    rate_bps: int


@dataclass(frozen=True, slots=True)
class FlowPlacement(Capability):
    """Send flows of a switch's own hosts by ports of its choice, and tell which flows there are, once a period.

    phase_fraction: where in a period that is, of a clock whose origin the carrier and the state machine share.
    idle_s: flows that send nothing for so long are forgotten.
    by_destination: flows to one destination are sent by one port, and a new one goes where the others go.
    """

    period_s: float
    phase_fraction: float
    idle_s: float
    by_destination: bool = False

    def turn(self, now: float) -> int:
        """The number of the period in which `now` is; what comes a millionth too early counts as the next."""
        return floor(now / self.period_s - self.phase_fraction + 1e-6)

    def next_s(self, now: float) -> float:
        """When the next period begins."""
        return (self.turn(now) + 1 + self.phase_fraction) * self.period_s


IN_TRANSIT = frozenset({PrefixRewrite, FlowRewrite})  # kinds that rewrite packets which a server passes on
REWRITES = frozenset({SourceRewrite}) | IN_TRANSIT  # kinds by which packets carry addresses that are no server's own
