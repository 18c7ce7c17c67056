"""TAR on the graph engine: flows of equal rate, each placed by the load of those before it.

A flow is placed once, when it begins, and stays on its path.  So a result depends on the order in
which flows begin, which CCRDN does not say.  Ours: a random order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from weft.daemons.core.compiled import allocates_nothing
from weft.daemons.tar.routing import BACK, DROP, SUBNETWORK, Site, extend, next_hop, start
from weft.experiments.engines.arrays import Array
from weft.experiments.engines.loops import (
    ALONG,
    LEFT_OUT,
    MOST_DRAWS,
    Faults,
    PairRange,
    has_dead_end,
    take_hop,
)
from weft.experiments.engines.pairs import SHIFT_11, Pairs, pair, word
from weft.topologies.recursive.ccrdn import peer

CAPACITY = 1 << 62  # of a link, in flows: more than there are
# of a Feistel network: as many as a pseudorandom permutation takes (Luby and Rackoff, 1988)
ROUNDS = 4
# words of the pairs' stream that order flows: far from those that draw pairs and hops
ORDER = 1 << 61


class Placement(NamedTuple):
    """Rules that CCRDN leaves open.

    relay: next server of a bypassed flow, as in daemons/tar/routing.py.
    virtual: virtual flows count as load.
    shuffled: flows begin in random order, not in that of their numbers.
    """

    relay: int = SUBNETWORK
    virtual: bool = True
    shuffled: bool = True


class PlacementState(NamedTuple):
    """The flows that are placed, and room for one path.

    load: flows on each channel.
    virtual: virtual flows of each server; a server gains one where it bypasses a flow and leaves
        its path.
    path: room for k + 1 marks and for the servers of the longest path.
    """

    load: Array
    virtual: Array
    path: Array


def nth(key: Any, number: int, total: int) -> int:
    """Return the `number`-th of 0 .. total-1 in a random order.

    A Feistel network on the least even number of bits, repeated while its result is too large.
    """
    bits = 1
    while 1 << 2 * bits < total:
        bits += 1
    mask = (1 << bits) - 1
    while True:
        high, low = number >> bits, number & mask
        for turn in range(ROUNDS):
            mixed = int(word(key, ORDER + (turn << bits) + low) >> SHIFT_11) & mask
            high, low = low, high ^ mixed
        number = high << bits | low
        if number < total:
            return number


def free_capacity(
    rule: int, t: Array, server: int, placement: Placement, down: Array, state: PlacementState
) -> tuple[int, int]:
    """Return the free flows of a server's two ports: to its switch, and to another server."""
    ports = len(t) + 1
    to_switch = CAPACITY - state.load[server * ports]
    to_server = 0
    if placement.virtual:
        to_switch -= state.virtual[server]
    for level in range(1, len(t)):
        channel = server * ports + level
        if peer(rule, t, server, level) >= 0 and not (len(down) and down[channel]):
            to_server = CAPACITY - state.load[channel]
    if len(down) and down[server * ports]:
        to_switch = 0
    return to_switch, to_server


@allocates_nothing
def drawn(pairs: Pairs, index: int, turn: int) -> int:
    """Return the number that is drawn for flow `index` at the `turn`-th server of its path."""
    return int(word(pairs.key, ALONG + index * MOST_DRAWS + turn) >> SHIFT_11)


@allocates_nothing
def set_up(
    rule: int,
    t: Array,
    placement: Placement,
    pairs: Pairs,
    index: int,
    down: Array,
    state: PlacementState,
) -> int:
    """Find the path of flow `index`; return its number of servers, 0 if the probe is lost."""
    marks, path = state.path[: len(t)], state.path[len(t) :]
    path[0], dst = pair(pairs, index)
    start(marks)
    length, turn, ports, n = 1, 0, len(t) + 1, t[0]
    while path[length - 1] != dst:
        server = path[length - 1]
        first = (server - server % n + 1) * ports - 1
        dead = down[first : first + n * ports : ports]  # from the switch, as tar.unreachable()
        draw = drawn(pairs, index, turn)
        turn += 1
        free = free_capacity(rule, t, server, placement, down, state)
        site = Site(rule, t, placement.relay, server, *free, dead, draw)
        neighbour = next_hop(site, path, length, dst, marks)
        if neighbour == DROP:
            return 0
        if neighbour == BACK:
            state.virtual[server] += 1
            length -= 1
        else:
            length = extend(path, length, neighbour)
    return length


def place(
    rule: int,
    t: Array,
    placement: Placement,
    part: PairRange,
    faults: Faults,
    state: PlacementState,
    histogram: Array,
) -> None:
    """Place the flows that begin as number part.first .. part.last-1."""
    pairs = part.pairs
    for number in range(part.first, part.last):
        index = nth(pairs.key, number, pairs.total) if placement.shuffled else number
        src, dst = pair(pairs, index)
        if has_dead_end(faults, src, dst):
            histogram[LEFT_OUT] += 1
            continue
        length = set_up(rule, t, placement, pairs, index, faults.down, state)
        for hop in range(len(t), len(t) + length - 1):
            take_hop(t, state.path[hop], state.path[hop + 1], faults.down, state.load)
        histogram[length - 1] += 1  # an unconnected flow has length -1, LOST
