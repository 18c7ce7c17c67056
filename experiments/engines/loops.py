"""Loops of the graph engine: the pure functions of daemons/routing over some of the pairs.

They run on one core; graph.py compiles them and shares the pairs out.  A pair costs no memory, and
no result depends on that of another pair.

Threads count into books, which a tally adds up: pairs by hops, without a route, flows on channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.daemons.dfr.routing import DROP, Dfr, View
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
from weft.daemons.routing.shortest import UNREACHED
from weft.daemons.routing.shortest import distances_within as distances
from weft.experiments.engines.arrays import Array, Ints, int_zeros
from weft.experiments.engines.pairs import Pairs, pair, word
from weft.topologies.recursive.ccrdn import common_level, peer

DEAD = 1 << 37  # the load of a dead channel: more flows than days are enough to route
LOST, LEFT_OUT = -1, -2
# words of the pairs' stream that are drawn at hops: far from those that draw pairs; words of a pair
ALONG, MOST_DRAWS = 1 << 62, 1 << 10

Flags = NDArray[np.uint8]
LONGEST = 1021  # hops of any route
SMALL_BATCH = 1 << 14  # pairs that are routed by the same loads, to begin with


class Faults(NamedTuple):
    """Dead channels and servers.

    down: 1 for each dead channel, shape (servers * (k + 2),); empty if none is dead.
    servers: 1 for each dead server; empty if none is dead.
    """

    down: Array
    servers: Array


class PairRange(NamedTuple):
    """The pairs first .. last-1."""

    pairs: Pairs
    first: int
    last: int


class Book(NamedTuple):
    """Counts of one thread.

    hops: pairs by hops; the last entry counts unconnected pairs, the one before it pairs with a
        dead end.
    flows: flows on each channel; empty if they are not counted.
    """

    hops: Array
    flows: Array


class ChannelView(NamedTuple):
    """The arguments of search() that describe channels.

    load: flows on each channel; empty if all look idle.
    dead: load from which a channel is dead.
    lengths: room for the hops of each candidate.
    """

    load: Array
    dead: int
    lengths: Array


class SearchRoom(NamedTuple):
    """Room of a breadth-first search, t[k] numbers each."""

    distance: Array
    queue: Array


def tabulate(
    below: PathTables,
    level: int,
    first: int,
    last: int,
    hops: Array,
    counts: Array,
    channels: Array,
) -> None:
    """Tabulate the servers first .. last-1 of an X(level) from the tables of a smaller one."""
    for src in range(first, last):
        tabulate_from(below, level, src, hops, counts, channels)


def links(rule: int, t: Array, level: int, end_a: Array, end_b: Array) -> int:
    """Write the ends of all links of a level, the smaller end first; return their number."""
    count = 0
    for a in range(t[-1]):
        b = peer(rule, t, a, level)
        if b > a:
            end_a[count] = a
            end_b[count] = b
            count += 1
    return count


def has_dead_end(faults: Faults, src: int, dst: int) -> bool:
    """Return whether one of two servers is dead."""
    return len(faults.servers) > 0 and (faults.servers[src] or faults.servers[dst])


def route(
    tables: PathTables,
    policy: Policy,
    part: PairRange,
    faults: Faults,
    view: ChannelView,
    book: Book,
) -> None:
    """Route pairs by PR, or by DR where `policy` tries no proxies."""
    for index in range(part.first, part.last):
        src, dst = pair(part.pairs, index)
        if has_dead_end(faults, src, dst):
            book.hops[LEFT_OUT] += 1
            continue
        place = parting(tables.t, src, dst)
        length, proxy = search(tables, policy, cost, place, view.load, view.dead, view.lengths)
        book.hops[length] += 1  # an unconnected pair has length -1, LOST
        if length >= 0 and len(book.flows):
            channels(tables, place, proxy, add, book.flows, 1)


def take_apart(
    tables: PathTables, inner: int, first: int, last: int, counted: Array, added: Array
) -> None:
    """Add the flows counted on stretches to the channels that these consist of.

    The stretches are those of the X(inner)s first .. last-1, numbered as in
    daemons/routing/path_tables.py.
    """
    size = tables.t[inner]
    channels = tables.ports
    ports = channels + size
    for server in range(first * size, last * size):
        for port in range(1, len(tables.t)):
            added[server * channels + port] += counted[server * ports + port]
        for b in range(size):
            flows = counted[server * ports + channels + b]
            if flows:
                path(tables, inner, server - server % size, server % size, b, add, added, flows)


def survey(tables: PathTables, policy: Policy, part: PairRange, sums: Array) -> None:
    """Add up the yield of the searches of some pairs (CCRDN 6.3, 7.1).

    The sums are: candidates, their squares, proxy routes no longer than DR's, their squares, and
    pairs with a shorter proxy route.
    """
    for index in range(part.first, part.last):
        src, dst = pair(part.pairs, index)
        place = parting(tables.t, src, dst)
        dr_hops = hops(tables, place, -1)
        proxies = span(tables.rule, tables.t, policy, place)
        tried, short, shorter = 0, 0, 0
        for i in range(candidates(proxies)):
            proxy = candidate(tables.rule, tables.t, place, proxies, i)
            if proxy >= 0:
                length = hops(tables, place, proxy)
                tried += 1
                short += length <= dr_hops
                shorter |= length < dr_hops
        sums[0] += tried
        sums[1] += tried * tried
        sums[2] += short
        sums[3] += short * short
        sums[4] += shorter


def take_hop(t: Array, server: int, neighbour: int, down: Array, added: Array) -> bool:
    """Return whether a hop is alive; count the flow on its channels if it is."""
    ports = len(t) + 1
    level = common_level(t, server, neighbour)
    channel = server * ports + level
    from_switch = (neighbour + 1) * ports - 1
    if len(down) and (down[channel] or (level == 0 and down[from_switch])):
        return False
    if len(added):
        added[channel] += 1
        if level == 0:
            added[from_switch] += 1
    return True


def reroute(
    rule: int, t: Array, dfr: Dfr, part: PairRange, faults: Faults, book: Book, room: Array
) -> None:
    """Route pairs by DFR.  room: shape (3, t[dfr.b] + 4)."""
    for index in range(part.first, part.last):
        src, dst = pair(part.pairs, index)
        if has_dead_end(faults, src, dst):
            book.hops[LEFT_OUT] += 1
        else:
            key = part.pairs.key
            book.hops[dfr_hops(rule, t, dfr, (src, dst, index, key), faults, book, room)] += 1


def dfr_hops(
    rule: int, t: Array, dfr: Dfr, flow: Any, faults: Faults, book: Book, room: Array
) -> int:
    """Return the hops of DFR's route; LOST if it does not arrive.

    Args:
        rule: of the network's connections.
        t: sizes of the network.
        dfr: parameters of the scheme.
        flow: source, destination, number of the pair, and key of its random words.
        faults: a server hears only of those in its own X(b).
        book: receives the flow on each channel.
        room: shape (3, t[dfr.b] + 4).
    """
    server, dst, index, key = flow
    ports, size = len(t) + 1, t[dfr.b]
    packet = room[2, size:]
    dfr_start(dfr, packet)
    length = 0
    while server != dst:
        begin = (server - server % size) * ports if len(faults.down) else 0
        known = faults.down[begin : begin + size * ports]
        draw = int(word(key, ALONG + index * MOST_DRAWS + length) >> 1)
        view = View(rule, t, dfr, server, known, room[0], room[1])
        neighbour = dfr_next_hop(view, room[2], dst, packet, draw)
        if neighbour == DROP or not take_hop(t, server, neighbour, faults.down, book.flows):
            return LOST
        server = neighbour
        length += 1
    return length


def search_breadth_first(
    rule: int, t: Array, src: int, faults: Faults, histogram: Array, room: SearchRoom
) -> None:
    """Count the shortest paths from server `src` to every other, by their hops."""
    distance, queue = room
    distances(rule, t, len(t) - 1, faults.down, src, distance, queue[:0], queue)
    for dst in range(t[-1]):
        if dst == src:
            continue
        if len(faults.servers) and faults.servers[dst]:
            histogram[LEFT_OUT] += 1
        elif distance[dst] == UNREACHED:
            histogram[LOST] += 1
        else:
            histogram[distance[dst]] += 1


@dataclass(frozen=True, eq=False)
class Tally:
    """The outcome of routing pairs.

    hops: number of pairs by the hops of their route; empty if no pair has one.
    lost: number of pairs without a route.
    left_out: number of pairs with a dead end.
    loads: flows on each channel, shape (servers, k + 2), if counted.
    """

    hops: Ints
    lost: int
    left_out: int
    loads: Ints | None = None

    @property
    def connected(self) -> int:
        return int(self.hops.sum())

    @property
    def connected_fraction(self) -> float | None:
        """Of the pairs whose ends are alive; None if there is no such pair."""
        alive = self.connected + self.lost
        return self.connected / alive if alive else None

    @property
    def mean_hops(self) -> float | None:
        """Over the connected pairs; None if there are none."""
        return (
            float(np.average(np.arange(len(self.hops)), weights=self.hops))
            if self.connected
            else None
        )

    @property
    def sd_hops(self) -> float | None:
        """Standard deviation over the connected pairs; None if there are none."""
        mean = self.mean_hops
        if mean is None:
            return None
        return float(
            np.sqrt(np.average((np.arange(len(self.hops)) - mean) ** 2, weights=self.hops))
        )


def new_book(channels: int) -> Book:
    """Return the empty counts of a thread: pairs by hops, and flows on `channels` channels."""
    return Book(int_zeros(LONGEST + 3), np.zeros(channels, np.uint32))


def post(books: Sequence[Book], into: Ints) -> None:
    """Add the flows of all `books` to `into`, and reset them."""
    for book in books:
        into += book.flows
        book.flows[:] = 0


def tally(histogram: Ints, loads: Ints | None = None) -> Tally:
    """Return the tally of a histogram of loops.py."""
    hops = histogram[:-2]
    return Tally(np.trim_zeros(hops, "b"), int(histogram[LOST]), int(histogram[LEFT_OUT]), loads)


def batches(count: int) -> Iterator[tuple[int, int]]:
    """Yield 0 .. count-1 in batches (first, last + 1).

    A batch is a 256th of all, at most SMALL_BATCH, or a 64th of those before.  Flows of one batch
    are placed by the same loads, so any order and number of cores gives the same result, and in
    later batches no flow misses more than 1.6 % of the load.
    """
    first = 0
    while first < count:
        last = min(count, first + max(1, min(count // 256, SMALL_BATCH), first // 64))
        yield first, last
        first = last


def chunks(count: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield 0 .. count-1 in parts (first, last + 1) of at most `most`."""
    for first in range(0, count, most):
        yield first, min(count, first + most)
