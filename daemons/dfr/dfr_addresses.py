"""Fields of a DFR packet (daemons/dfr/routing.py), encoded in the first octet of its address.

A proxy is the far end of a level-L link that leaves the X(b) of the reroute; the packet stays in
that X(b) until it takes the link.  One link joins two sub-networks of level L, so (L, the proxy's
sub-network) names the link to every server that ever sees the packet.  Together with the level of
the last reroute and the reroutes left, that makes

    1 + retry x ((g_L of all levels L > b) + (k - b))

states: 1 if the scope is the whole network, 16 in FiConn_{2,4}, 43 in DCell_{2,3}, 67 in
DCell_{2,4}.  A packet for 10.x.y.z in state i carries first octet number i
(daemons/routing/first_octets.py) in place of 10; state 0 is that of a packet at its source.  The
IP header's TTL counts the hops left.

The paper uses a header of its own instead, for which Linux has no place.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from weft.daemons.dfr.routing import NOWHERE, Dfr
from weft.daemons.routing.first_octets import COUNT
from weft.topologies.recursive.ccrdn import Ccrdn, gateway

NO_SUBNETWORK = -1


class HopState(NamedTuple):
    """State of a packet as its address carries it.

    level: level of its last reroute, or 0.
    subnetwork: sub-network of its proxy at that level, or NO_SUBNETWORK.
    retry: reroutes left.
    """

    level: int
    subnetwork: int
    retry: int


@lru_cache(maxsize=4)
def states(network: Ccrdn, settings: Dfr) -> tuple[HopState, ...]:
    """Return all states, that of a packet at its source first.

    Raises:
        ValueError: more states than first octets.
    """
    every = [HopState(0, NO_SUBNETWORK, settings.retry)]
    for level in range(settings.b + 1, network.k + 1):
        for subnetwork in range(NO_SUBNETWORK, network.copies[level]):
            every += [HopState(level, subnetwork, retry) for retry in range(settings.retry)]
    if len(every) > COUNT:
        raise ValueError(
            f"dfr: the states of packets need {len(every)} addresses of each server, and there "
            f"are {COUNT}; "
            f"take fewer retries than {settings.retry}, or a wider scope than b={settings.b}"
        )
    return tuple(every)


@lru_cache(maxsize=4)
def numbers(network: Ccrdn, settings: Dfr) -> dict[HopState, int]:
    """Return the position of each state in states()."""
    return {state: i for i, state in enumerate(states(network, settings))}


def packet_in(network: Ccrdn, state: HopState, cur: int) -> list[int]:
    """Return the fields of a packet in `state` at server `cur`, with one hop left."""
    proxy = NOWHERE
    if state.subnetwork != NO_SUBNETWORK:
        t, level = network.t, state.level
        own = cur % t[level] // t[level - 1]
        first = cur - cur % t[level] + state.subnetwork * t[level - 1]
        proxy = (
            cur
            if own == state.subnetwork
            else first + gateway(network.rule, t, level, state.subnetwork, own)
        )
    return [proxy, state.retry, 1, state.level]


def state_of(network: Ccrdn, packet: Sequence[int]) -> HopState:
    """Return the state of a packet with these fields."""
    t = network.t
    proxy, retry, _, level = packet
    if proxy == NOWHERE:
        return HopState(level, NO_SUBNETWORK, retry)
    return HopState(level, proxy % t[level] // t[level - 1], retry)
