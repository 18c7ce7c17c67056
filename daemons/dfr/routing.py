"""DFR, fault-tolerant routing, on any X(k) with one link per pair of sub-networks.

Guo et al.  describe it for DCell (SIGCOMM 2008, section 4.3).

Every server knows the state of the links within its own X(b).  A packet takes a shortest path
within that X(b) to the first link of its DR route that leads out.  If that link is dead, the server
makes the far end of another link the packet's next target, its proxy (local reroute).

Our reading follows CCRDN 4.2.1, because the paper itself was not at hand; every constant is a
parameter.

The same source runs interpreted, on lists and bytes, and compiled, on arrays.

Fields of a packet are encoded in the first octet of its address.
A proxy is the far end of a level-L link that leaves the X(b) of the reroute; the packet stays in
that X(b) until it takes the link.  One link joins two sub-networks of level L, so (L, the proxy's
sub-network) names the link to every server that ever sees the packet.  Together with the level of
the last reroute and the reroutes left, that makes

    1 + retry x ((g_L of all levels L > b) + (k - b))

states: 1 if the scope is the whole network, 16 in FiConn_{2,4}, 43 in DCell_{2,3}, 67 in
DCell_{2,4}.  A packet for 10.x.y.z in state i carries first octet number i
(daemons/routing/route_addresses.py) in place of 10; state 0 is that of a packet at its source.  The
IP header's TTL counts the hops left.

The paper uses a header of its own instead, for which Linux has no place.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from functools import lru_cache
from typing import NamedTuple

from weft.daemons.routing.route_addresses import COUNT
from weft.daemons.routing.shortest import UNREACHED, distances_within, first_hop
from weft.topologies.recursive.ccrdn import Ccrdn, common_level, gateway, peer

# Fields of a packet: the server that it must visit first, or NOWHERE; reroutes left; hops left;
# level of its last reroute, or 0.
PROXY, RETRY, TTL, LEVEL = 0, 1, 2, 3
FIELDS = 4

NOWHERE = -1
DROP = -1
NO_SUBNETWORK = -1


class Dfr(NamedTuple):
    """Parameters of DFR.

    b: level of the sub-network whose link state a server knows.
    retry: reroutes that a packet may make.
    ttl: hops that a packet may make.
    nearest: reroute over the proxy link nearest to the server; otherwise over any, by a draw.
    """

    b: int = 1
    retry: int = 3
    ttl: int = 64
    nearest: bool = True


def start(dfr: Dfr, packet: MutableSequence[int]) -> None:
    """Fill in a packet's fields at its source."""
    packet[PROXY] = NOWHERE
    packet[RETRY] = dfr.retry
    packet[TTL] = dfr.ttl
    packet[LEVEL] = 0


def exit_link(rule: int, t: Sequence[int], b: int, cur: int, dst: int) -> tuple[int, int]:
    """Return where DR's route leaves the X(b) of `cur`: last server and level of the link.

    If the route stays within, they are `dst` and 0.
    """
    target = dst
    link = 0
    while True:
        level = common_level(t, cur, target)
        if level <= b:
            return target, link
        sub = t[level - 1]
        base = cur - cur % t[level]
        i = (cur - base) // sub
        j = (target - base) // sub
        target = base + i * sub + gateway(rule, t, level, i, j)
        link = level


class View(NamedTuple):
    """A server that forwards packets, and what it knows of its X(b).

    rule: connection rule of the network.
    t: servers of a sub-network of each level.
    dfr: parameters.
    server: its number.
    down: 1 for each dead channel of the X(b) (daemons/routing/shortest.py); empty if none is dead.
    distance: of each server of the X(b), as look() fills it.
    parent: as `distance`.
    """

    rule: int
    t: Sequence[int]
    dfr: Dfr
    server: int
    down: Sequence[int]
    distance: MutableSequence[int]
    parent: MutableSequence[int]


def first_of(view: View) -> int:
    """Return the first server of the X(b)."""
    return view.server - view.server % view.t[view.dfr.b]


def look(view: View, queue: MutableSequence[int]) -> None:
    """Search the X(b) from the server.  queue: room for as many numbers as it has servers."""
    source = view.server - first_of(view)
    b, down = view.dfr.b, view.down
    distances_within(view.rule, view.t, b, down, source, view.distance, view.parent, queue)


def is_dead(view: View, inner: int, level: int) -> bool:
    """Return True for a dead level-`level` link of server `inner`, by its number in the X(b)."""
    return len(view.down) > 0 and view.down[inner * (len(view.t) + 1) + level] > 0


def proxy_link(view: View, level: int, draw: int) -> int:
    """Return the server over whose level-`level` link a packet is rerouted; -1 if there is none.

    It is reachable and its link is alive; among several, the nearest or the `draw`-th.  Servers are
    numbered within the X(b).
    """
    distance, first = view.distance, first_of(view)
    nearest, count = -1, 0
    for turn in range(2):  # count the candidates; then, unless the nearest is taken, draw one
        index = draw % count if turn else -1
        count = 0
        for v in range(view.t[view.dfr.b]):
            if distance[v] == UNREACHED or is_dead(view, v, level):
                continue
            if peer(view.rule, view.t, first + v, level) < 0:
                continue
            if count == index:
                return v
            if nearest < 0 or distance[v] < distance[nearest]:
                nearest = v
            count += 1
        if view.dfr.nearest or count == 0:
            break
    return nearest


def next_level(t: Sequence[int], packet: MutableSequence[int], level: int) -> int:
    """Return the level of a reroute around a dead level-`level` link; count it in the packet."""
    packet[RETRY] -= 1
    # jump-up: the last reroute at this level led to another dead end
    if packet[LEVEL] == level and level < len(t) - 1:
        level += 1
    packet[LEVEL] = level
    return level


def next_hop(
    view: View, queue: MutableSequence[int], dst: int, packet: MutableSequence[int], draw: int
) -> int:
    """Return the neighbour to which the server hands `packet`, or DROP; update packet and view.

    Args:
        view: of the server, with room for its distances and parents.
        queue: room as look() needs it.
        dst: the packet's destination.
        packet: its fields.
        draw: any number; chooses the proxy link unless the nearest is taken.
    """
    if packet[TTL] == 0:
        return DROP
    packet[TTL] -= 1
    if packet[PROXY] == view.server:
        packet[PROXY] = NOWHERE
    look(view, queue)
    return onward(view, dst, packet, draw)


def onward(view: View, dst: int, packet: MutableSequence[int], draw: int) -> int:
    """Return next_hop() of a packet with hops left, after a look(), the same for all packets."""
    rule, t, cur, first = view.rule, view.t, view.server, first_of(view)
    while True:
        target = dst if packet[PROXY] == NOWHERE else packet[PROXY]
        leave, link = exit_link(rule, t, view.dfr.b, cur, target)
        v = leave - first
        if view.distance[v] != UNREACHED and not (link > 0 and is_dead(view, v, link)):
            if leave == cur:
                return peer(rule, t, cur, link)
            return first + first_hop(view.parent, cur - first, v)
        if link == 0 or packet[RETRY] == 0:
            return DROP
        link = next_level(t, packet, link)
        near = proxy_link(view, link, draw)
        if near < 0:
            return DROP
        packet[PROXY] = peer(rule, t, first + near, link)


def route(
    rule: int, t: Sequence[int], dfr: Dfr, down: Sequence[int], src: int, dst: int
) -> tuple[list[int], bool]:
    """Return the servers that a packet visits, `src` first, and whether it arrives.

    Each server knows the dead channels of its own X(b), and always draws the same proxy link.

    Args:
        rule: connection rule of the network.
        t: servers of a sub-network of each level.
        dfr: parameters.
        down: 1 for each dead channel of the whole network.
        src: source.
        dst: destination.
    """
    size, ports = t[dfr.b], len(t) + 1
    packet = [0] * FIELDS
    distance, parent, queue = [0] * size, [0] * size, [0] * size
    start(dfr, packet)
    path = [src]
    while path[-1] != dst:
        cur = path[-1]
        first = cur - cur % size
        known = down[first * ports : (first + size) * ports]
        view = View(rule, t, dfr, cur, known, distance, parent)
        server = next_hop(view, queue, dst, packet, cur)
        if server == DROP:
            return path, False
        path.append(server)
    return path, True


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
