"""What a scheme may need of a carrier beyond sockets, a clock and a forwarding table: as data, for one node each.

A carrier has for each of these kinds something that carries out its actions and tells its events; one that has not
refuses the scheme.

    kind            actions            events
    SourceRewrite   SetSourceRewrite   DestinationInUse, Refused, Measured
    PrefixRewrite   SetPrefixRewrite   none
    FlowRewrite     SetFlowRewrite     FlowInUse, Refused, Measured
    QueueState      SetQueueState      QueuesCall
    LinkRates       none               LinkDegraded
"""

from __future__ import annotations

from dataclasses import dataclass


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


IN_TRANSIT = frozenset({PrefixRewrite, FlowRewrite})  # kinds that rewrite packets which a server passes on
REWRITES = frozenset({SourceRewrite}) | IN_TRANSIT  # kinds by which packets bear addresses that are no server's own
