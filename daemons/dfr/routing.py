"""DFR, fault-tolerant routing on DCell (Guo et al., SIGCOMM 2008, section 4.3), here on any X(k)
with one link per pair.

Every server knows the state of the links within its own X(b).  A packet goes to the first link of
its DR route that leads out of that X(b), by a shortest path within it; where that link is dead the
server makes the far end of another link, its proxy, the packet's next aim (local reroute).

Ours: as remembered from the paper, which is at hand only in CCRDN 4.2.1; every constant is a
parameter.

Written so that the same source runs as it stands, on lists and bytes, and compiled, on arrays.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import NamedTuple

from weft.daemons.routing.scope import UNREACHED, distances, first_hop
from weft.topologies.recursive.ccrdn import common_level, gateway, peer

# What a packet carries: the server it must visit first, or NOWHERE; reroutes and hops that it may
# still make;
# the level at which it was rerouted last, or 0.
PROXY, RETRY, TTL, LEVEL = 0, 1, 2, 3
FIELDS = 4

NOWHERE = -1
DROP = -1


class Dfr(NamedTuple):
    """b: scope of link state.  retry: reroutes that a packet may make.  ttl: hops that it may make.

    nearest: take the proxy link that is nearest to the server; otherwise any, by a number drawn for
        it.
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
    """The last server of DR's route from `cur` to `dst` that lies in the X(b) of `cur`, and the
    level of the link by which the route leaves it; `dst` and 0 if it does not."""
    target, link = dst, 0
    while True:
        level = common_level(t, cur, target)
        if level <= b:
            return target, link
        sub = t[level - 1]
        base = cur - cur % t[level]
        i, j = (cur - base) // sub, (target - base) // sub
        target, link = base + i * sub + gateway(rule, t, level, i, j), level


def proxy_link(
    rule: int,
    t: Sequence[int],
    dfr: Dfr,
    down: Sequence[int],
    first: int,
    level: int,
    distance: Sequence[int],
    draw: int,
) -> int:
    """The server whose level-`level` link a packet is rerouted over, numbered within the X(b) that
    begins at `first`.

    It is reached and its link is alive; of several, the nearest or the `draw`-th.  -1 if there is
    none.
    """
    ports, size = len(t) + 1, t[dfr.b]
    chosen, found = -1, 0
    for v in range(size):
        if (
            distance[v] == UNREACHED
            or (len(down) and down[v * ports + level])
            or peer(rule, t, first + v, level) < 0
        ):
            continue
        if chosen < 0 or (dfr.nearest and distance[v] < distance[chosen]):
            chosen = v
        found += 1
    if dfr.nearest or found == 0:
        return chosen
    draw %= found
    for v in range(size):
        if (
            distance[v] == UNREACHED
            or (len(down) and down[v * ports + level])
            or peer(rule, t, first + v, level) < 0
        ):
            continue
        if draw == 0:
            chosen = v
        draw -= 1
    return chosen


def next_hop(
    rule: int,
    t: Sequence[int],
    dfr: Dfr,
    down: Sequence[int],
    cur: int,
    dst: int,
    packet: MutableSequence[int],
    draw: int,
    distance: MutableSequence[int],
    parent: MutableSequence[int],
    queue: MutableSequence[int],
) -> int:
    """The neighbour to which server `cur` hands `packet` for `dst`, whose fields it changes; DROP
    if it gives up.

    down: 1 for each dead channel of the X(b) of `cur`, as in daemons/routing/scope.py; empty if
        there is none.
    draw: any number; used where dfr.nearest is not set.
    distance, parent, queue: room for t[dfr.b] numbers each.
    """
    if packet[TTL] == 0:
        return DROP
    packet[TTL] -= 1
    if packet[PROXY] == cur:
        packet[PROXY] = NOWHERE
    first = cur - cur % t[dfr.b]
    distances(rule, t, dfr.b, down, cur - first, distance, parent, queue)
    return onward(rule, t, dfr, down, cur, dst, packet, draw, distance, parent)


def onward(
    rule: int,
    t: Sequence[int],
    dfr: Dfr,
    down: Sequence[int],
    cur: int,
    dst: int,
    packet: MutableSequence[int],
    draw: int,
    distance: Sequence[int],
    parent: Sequence[int],
) -> int:
    """next_hop() for a packet that may go on, where the `distance` and `parent` of a search from
    `cur` are known: it is the same search for every packet that `cur` ever sees."""
    ports = len(t) + 1
    first = cur - cur % t[dfr.b]
    while True:
        target = dst if packet[PROXY] == NOWHERE else packet[PROXY]
        leave, link = exit_link(rule, t, dfr.b, cur, target)
        alive = link == 0 or len(down) == 0 or not down[(leave - first) * ports + link]
        if alive and distance[leave - first] != UNREACHED:
            return (
                peer(rule, t, cur, link)
                if leave == cur
                else first + first_hop(parent, cur - first, leave - first)
            )
        if link == 0 or packet[RETRY] == 0:
            return DROP
        packet[RETRY] -= 1
        # jump-up: a reroute at this level has led to where the way is barred as well
        if packet[LEVEL] == link and link < len(t) - 1:
            link += 1
        packet[LEVEL] = link
        near = proxy_link(rule, t, dfr, down, first, link, distance, draw)
        if near < 0:
            return DROP
        packet[PROXY] = peer(rule, t, first + near, link)


def route(
    rule: int, t: Sequence[int], dfr: Dfr, down: Sequence[int], src: int, dst: int
) -> tuple[list[int], bool]:
    """The servers that a packet visits, `src` first, and whether it arrives.

    down: 1 for each dead channel of the whole network; each server is told those of its own X(b).
    Where any proxy link may be taken, the one drawn at a server is always the same.
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
        to = next_hop(rule, t, dfr, known, cur, dst, packet, cur, distance, parent, queue)
        if to == DROP:
            return path, False
        path.append(to)
    return path, True
