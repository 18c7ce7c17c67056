"""What a DFR packet carries (daemons/dfr/routing.py), as the first octet of the address that it
carries.

A packet's proxy is the far end of a level-L link that leaves the X(b) in which it was rerouted, and
until it is there the packet stays in that X(b).  Between two copies of level L there is one link,
so that (L, the proxy's copy) says which, to every server that ever sees the packet.  With the level
at which it was rerouted last and the reroutes that are left, that makes

    1 + retry x ((g_L of all levels L > b) + (k - b))

states: 1 without a scope to leave, 16 in FiConn_{2,4}, 43 in DCell_{2,3}, 67 in DCell_{2,4}.  A
packet for 10.x.y.z in state number i carries the first octet of that number
(daemons/routing/first_octets.py) in place of 10, number 0 when it leaves its source.  The last
field, hops that are left, is the IP header's own TTL.

Ours: the paper has a header of its own for this, for which Linux has no place.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from functools import lru_cache
from typing import NamedTuple

from weft.daemons.dfr.routing import LEVEL, NOWHERE, PROXY, RETRY, TTL, Dfr
from weft.daemons.routing.first_octets import COUNT
from weft.topologies.recursive.ccrdn import Ccrdn, gateway

NO_SUBNETWORK = -1


class HopState(NamedTuple):
    """What a packet carries: the copy, of level `level`, where its proxy is, or NO_SUBNETWORK; the
    level at which it was rerouted last, or 0; reroutes that are left."""

    level: int
    copy: int
    retry: int


@lru_cache(maxsize=4)
def states(network: Ccrdn, dfr: Dfr) -> tuple[HopState, ...]:
    """All of them, that of a packet at its source first; ValueError if there are more than first
    octets."""
    found = [HopState(0, NO_SUBNETWORK, dfr.retry)]
    for level in range(dfr.b + 1, network.k + 1):
        for copy in range(NO_SUBNETWORK, network.copies[level]):
            found += [HopState(level, copy, retry) for retry in range(dfr.retry)]
    if len(found) > COUNT:
        raise ValueError(
            f"dfr: what packets carry takes {len(found)} addresses of each server, and there are "
            f"{COUNT}; "
            f"take fewer retries than {dfr.retry}, or a wider scope than b={dfr.b}"
        )
    return tuple(found)


@lru_cache(maxsize=4)
def numbers(network: Ccrdn, dfr: Dfr) -> dict[HopState, int]:
    """Where each state stands in states()."""
    return {state: i for i, state in enumerate(states(network, dfr))}


def write(network: Ccrdn, state: HopState, cur: int, packet: MutableSequence[int]) -> None:
    """Fill in the fields of a packet that is at server `cur` in `state`, and may go on."""
    packet[PROXY], packet[RETRY], packet[TTL], packet[LEVEL] = NOWHERE, state.retry, 1, state.level
    if state.copy != NO_SUBNETWORK:
        t, level = network.t, state.level
        own = cur % t[level] // t[level - 1]
        first = cur - cur % t[level] + state.copy * t[level - 1]
        packet[PROXY] = (
            first + gateway(network.rule, t, level, state.copy, own) if own != state.copy else cur
        )


def read(network: Ccrdn, packet: MutableSequence[int]) -> HopState:
    """The state of a packet with these fields."""
    level, proxy = packet[LEVEL], packet[PROXY]
    copy = NO_SUBNETWORK if proxy == NOWHERE else proxy % network.t[level] // network.t[level - 1]
    return HopState(level, copy, packet[RETRY])
