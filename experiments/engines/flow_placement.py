"""TAR on the graph engine: flows of equal rate, set up one after another, each by what those before
it have left.

A flow is set up once, when it begins, and stays on its path; nothing is set up again when later
flows change the loads. So an answer depends on the order in which flows begin, which CCRDN does not
say.  Ours: a random one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from weft.daemons.tar.routing import BACK, DROP, SUBNETWORK, extend, next_hop, start
from weft.experiments.engines.arrays import Array
from weft.experiments.engines.loops import ALONG, LEFT_OUT, MOST_DRAWS, take_hop
from weft.experiments.engines.pairs import SHIFT_11, Pairs, pair, word
from weft.topologies.recursive.ccrdn import peer

CAPACITY = 1 << 62  # of a link, in flows: more than there are
# of a Feistel network: as many as a pseudorandom permutation takes (Luby and Rackoff, 1988)
ROUNDS = 4
# words of the pairs' stream that put them in order: far from those that draw pairs and hops
ORDER = 1 << 61


class Placement(NamedTuple):
    """What CCRDN leaves open.

    relay: where a bypassed flow goes, as in daemons/tar/routing.py.
    virtual: whether virtual flows count.
    shuffled: whether flows begin in random order, and not in that of their numbers.
    """

    relay: int = SUBNETWORK
    virtual: bool = True
    shuffled: bool = True


def nth(key: Any, number: int, total: int) -> int:
    """The `number`-th of 0 .. total-1 in a random order: a Feistel network on the least even number
    of bits, run again where it leads past the end.
    """
    bits = 1
    while 1 << 2 * bits < total:
        bits += 1
    mask = (1 << bits) - 1
    while True:
        left, right = number >> bits, number & mask
        for turn in range(ROUNDS):
            left, right = (
                right,
                left ^ (int(word(key, ORDER + (turn << bits) + right) >> SHIFT_11) & mask),
            )
        number = left << bits | right
        if number < total:
            return number


def set_up(
    rule: int,
    t: Array,
    placement: Placement,
    pairs: Pairs,
    index: int,
    load: Array,
    virtual: Array,
    down: Array,
    path: Array,
) -> int:
    """Write the servers of flow `index` to `path`, after room for k + 1 marks, and return how many
    they are; 0 if the flow's probe does not arrive.

    virtual: virtual flows of each server, increased where a server bypasses this flow and leaves
        its path.
    """
    ports, n = len(t) + 1, t[0]
    marks, path = path[: len(t)], path[len(t) :]
    path[0], dst = pair(pairs, index)
    start(marks)
    length, turn = 1, 0
    while path[length - 1] != dst:
        cur = path[length - 1]
        free, free_link = CAPACITY - load[cur * ports], 0
        if placement.virtual:
            free -= virtual[cur]
        for level in range(1, len(t)):
            if peer(rule, t, cur, level) >= 0 and not (len(down) and down[cur * ports + level]):
                free_link = CAPACITY - load[cur * ports + level]
        if len(down) and down[cur * ports]:
            free = 0
        first = cur - cur % n
        dead = down[(first + 1) * ports - 1 : (first + n) * ports : ports]
        draw = int(word(pairs.key, ALONG + index * MOST_DRAWS + turn) >> SHIFT_11)
        turn += 1
        to = next_hop(
            rule, t, placement.relay, path, length, dst, marks, free, free_link, dead, draw
        )
        if to == DROP:
            return 0
        if to == BACK:
            virtual[cur] += 1
            length -= 1
        else:
            length = extend(path, length, to)
    return length


def place(
    rule: int,
    t: Array,
    placement: Placement,
    pairs: Pairs,
    first: int,
    last: int,
    load: Array,
    virtual: Array,
    down: Array,
    dead_server: Array,
    histogram: Array,
    path: Array,
) -> None:
    """Set up the flows that begin as number first .. last-1.

    load, virtual: flows on each channel and virtual flows of each server, those of earlier flows to
        begin with.
    down, dead_server, histogram: as in loops.py.  path: room for k + 1 marks and for the servers of
        the longest path.
    """
    for number in range(first, last):
        index = nth(pairs.key, number, pairs.total) if placement.shuffled else number
        src, dst = pair(pairs, index)
        if len(dead_server) and (dead_server[src] or dead_server[dst]):
            histogram[LEFT_OUT] += 1
            continue
        length = set_up(rule, t, placement, pairs, index, load, virtual, down, path)
        for at in range(len(t), len(t) + length - 1):
            take_hop(t, path[at], path[at + 1], down, load)
        histogram[length - 1] += 1  # of a flow that is not connected it is -1, LOST
