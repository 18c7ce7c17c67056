"""The loops of the graph engine: each takes the pure functions of daemons/routing over some of the
pairs.

They run on one core; graph.py compiles them and shares the pairs out.  A pair costs no memory, and
one result never depends on another's.

In all of them:
histogram: pairs by hops; its last entry counts those that are not connected, the one before those
    left out.
dead_server: 1 for a server whose pairs are left out; empty if there is none.
added: flows that each channel carries, to be increased; empty if not wanted.
"""

from __future__ import annotations

from weft.daemons.dfr.routing import DROP, Dfr
from weft.daemons.dfr.routing import next_hop as dfr_next_hop
from weft.daemons.dfr.routing import start as dfr_start
from weft.daemons.proxy.routing import (
    Policy,
    candidate,
    candidates,
    channels,
    hops,
    parting,
    search,
    span,
)
from weft.daemons.proxy.routing import shortest_first as cost
from weft.daemons.routing.path_tables import PathTables, add, path, tabulate_from
from weft.daemons.routing.scope import UNREACHED, distances
from weft.experiments.engines.arrays import Array
from weft.experiments.engines.pairs import Pairs, pair, word
from weft.topologies.recursive.ccrdn import common_level, peer

DEAD = 1 << 37  # the load of a dead channel: more flows than days are enough to route
LOST, LEFT_OUT = -1, -2
# Words of the pairs' stream that are drawn on the way: far from those that draw the pairs, and so
# many for each pair.
ALONG, MOST_DRAWS = 1 << 62, 1 << 10


def tabulate(
    below: PathTables,
    level: int,
    first: int,
    last: int,
    hops: Array,
    counts: Array,
    channels: Array,
) -> None:
    """Fill in the tables of an X(level) for its servers first .. last-1, given those of a smaller
    one.
    """
    for src in range(first, last):
        tabulate_from(below, level, src, hops, counts, channels)


def links(rule: int, t: Array, level: int, end_a: Array, end_b: Array) -> int:
    """Write the ends of all level-`level` links, the smaller first and in its order.

    Return how many.
    """
    count = 0
    for a in range(t[-1]):
        b = peer(rule, t, a, level)
        if b > a:
            end_a[count] = a
            end_b[count] = b
            count += 1
    return count


def route(
    tables: PathTables,
    policy: Policy,
    pairs: Pairs,
    first: int,
    last: int,
    load: Array,
    dead: int,
    dead_server: Array,
    added: Array,
    histogram: Array,
    lengths: Array,
) -> None:
    """PR for the pairs first .. last-1, DR where `policy` tries no proxies.

    `load` and `lengths` as search() takes them.
    """
    for index in range(first, last):
        src, dst = pair(pairs, index)
        if len(dead_server) and (dead_server[src] or dead_server[dst]):
            histogram[LEFT_OUT] += 1
            continue
        at = parting(tables.t, src, dst)
        length, proxy = search(tables, policy, cost, at, load, dead, lengths)
        histogram[length] += 1  # of an unconnected pair it is -1, LOST
        if length >= 0 and len(added):
            channels(tables, at, proxy, add, added, 1)


def take_apart(
    tables: PathTables, inner: int, first: int, last: int, counted: Array, added: Array
) -> None:
    """Add the flows on the stretches of the X(inner)s first .. last-1, numbered as in
    daemons/routing/path_tables.py, to the channels that these are made of.
    """
    size, channels = tables.t[inner], tables.ports
    ports = channels + size
    for server in range(first * size, last * size):
        for port in range(1, len(tables.t)):
            added[server * channels + port] += counted[server * ports + port]
        for b in range(size):
            flows = counted[server * ports + channels + b]
            if flows:
                path(tables, inner, server - server % size, server % size, b, add, added, flows)


def survey(
    tables: PathTables, policy: Policy, pairs: Pairs, first: int, last: int, sums: Array
) -> None:
    """Add up, over the pairs first .. last-1: candidates, their squares.

    Proxy routes no longer than DR's, their squares; pairs that have a shorter one (CCRDN 6.3, 7.1).
    """
    for index in range(first, last):
        src, dst = pair(pairs, index)
        at = parting(tables.t, src, dst)
        dr = hops(tables, at, -1)
        of = span(tables.rule, tables.t, policy, at)
        tried, short, shorter = 0, 0, 0
        for i in range(candidates(of)):
            proxy = candidate(tables.rule, tables.t, at, of, i)
            if proxy >= 0:
                length = hops(tables, at, proxy)
                tried += 1
                short += length <= dr
                shorter |= length < dr
        sums[0] += tried
        sums[1] += tried * tried
        sums[2] += short
        sums[3] += short * short
        sums[4] += shorter


def take_hop(t: Array, cur: int, to: int, down: Array, added: Array) -> bool:
    """Whether the hop from `cur` to its neighbour `to` is alive.

    Counts the flow on its channels if it is.
    """
    ports = len(t) + 1
    level = common_level(t, cur, to)
    here, there = cur * ports + level, (to + 1) * ports - 1
    if len(down) and (down[here] or (level == 0 and down[there])):
        return False
    if len(added):
        added[here] += 1
        if level == 0:
            added[there] += 1
    return True


def reroute(
    rule: int,
    t: Array,
    dfr: Dfr,
    pairs: Pairs,
    first: int,
    last: int,
    down: Array,
    dead_server: Array,
    added: Array,
    histogram: Array,
    room: Array,
) -> None:
    """DFR for the pairs first .. last-1.

    down: 1 for each dead channel, or empty.  room: shape (3, t[dfr.b] + 4).
    """
    ports, size = len(t) + 1, t[dfr.b]
    packet = room[2, size:]
    for index in range(first, last):
        cur, dst = pair(pairs, index)
        if len(dead_server) and (dead_server[cur] or dead_server[dst]):
            histogram[LEFT_OUT] += 1
            continue
        dfr_start(dfr, packet)
        length = 0
        while cur != dst:
            begin = (cur - cur % size) * ports if len(down) else 0
            known = down[begin : begin + size * ports]  # a server hears of no other links
            draw = int(word(pairs.key, ALONG + index * MOST_DRAWS + length) >> 1)
            to = dfr_next_hop(
                rule, t, dfr, known, cur, dst, packet, draw, room[0], room[1], room[2]
            )
            if to == DROP or not take_hop(t, cur, to, down, added):
                length = LOST
                break
            cur = to
            length += 1
        histogram[length] += 1


def search_breadth_first(
    rule: int,
    t: Array,
    src: int,
    down: Array,
    dead_server: Array,
    histogram: Array,
    distance: Array,
    queue: Array,
) -> None:
    """Shortest paths from server `src` to every other.  distance, queue: room for t[k] numbers
    each.
    """
    distances(rule, t, len(t) - 1, down, src, distance, queue[:0], queue)
    for dst in range(t[-1]):
        if dst == src:
            continue
        if len(dead_server) and dead_server[dst]:
            histogram[LEFT_OUT] += 1
        elif distance[dst] == UNREACHED:
            histogram[LOST] += 1
        else:
            histogram[distance[dst]] += 1
