"""DR's paths within the small sub-networks of an X(k), tabulated: the bricks that longer paths are built of.

A proxy search measures some hundred DR paths for every pair of servers.  All X(m) of a network are alike, so one
table of an X(m) gives, by look-ups, the paths within any of them; a path within an X(m+1) is two of them and a link.

A channel is one direction of a link, numbered server * (k + 2) + port: port 0 leads from the server to its crossbar,
port l >= 1 over its level-l link, and port k + 1 is the way from the crossbar to the server.

Written so that the same source runs as it stands, on tuples and bytes, and compiled, on arrays.
"""

from __future__ import annotations

from array import array
from collections.abc import MutableSequence, Sequence
from typing import NamedTuple

from topologies.ccrdn import common_level, gateway


class Tables(NamedTuple):
    """An X(k), and the DR paths between the servers 0 .. t[level]-1 of an X(level).

    rule, t: as in topologies/ccrdn.py.
    hops: entry a * t[level] + b is the length of the path from server a to server b.
    channels: the path's channels begin at entry (a * t[level] + b) * width(level) and end before the first -1; empty
        where only lengths are asked for.
    """

    rule: int
    t: Sequence[int]
    level: int
    hops: Sequence[int]
    channels: Sequence[int]


def width(level: int) -> int:
    """One more than the most channels of a DR path within an X(level): two for each of 2^level hops through
    crossbars, one for each of the 2^level - 1 links between them."""
    return 3 << level


def tabulate_crossbar(t: Sequence[int], hops: MutableSequence[int], channels: MutableSequence[int]) -> None:
    """Fill in the tables of an X(0)."""
    n, ports = t[0], len(t) + 1
    for row in range(n * n):
        src, dst = row // n, row % n
        hops[row] = int(src != dst)
        if len(channels):
            at = row * width(0)
            if src != dst:
                channels[at] = src * ports
                channels[at + 1] = (dst + 1) * ports - 1
                at += 2
            channels[at] = -1


def tabulate_from(
    below: Tables, level: int, src: int, hops: MutableSequence[int], channels: MutableSequence[int]
) -> None:
    """Fill in the tables of an X(level) for the paths from server `src`, given those of a smaller X(h)."""
    size = below.t[level]
    for dst in range(size):
        row = src * size + dst
        hops[row] = length(below, level, src, dst)
        if len(channels):
            channels[path(below, level, 0, src, dst, channels, row * width(level))] = -1


def tabulate(rule: int, t: Sequence[int], level: int, *, with_channels: bool = False) -> Tables:
    """The tables of an X(level), in plain Python: for levels of a few hundred servers at the most."""
    hops = bytearray(t[0] ** 2)
    channels = array("l", bytes(8 * len(hops) * width(0) * with_channels))
    tabulate_crossbar(t, hops, channels)
    tables = Tables(rule, t, 0, hops, channels)
    for h in range(1, level + 1):
        hops = bytearray(t[h] ** 2)
        channels = array("l", bytes(8 * len(hops) * width(h) * with_channels))
        for src in range(t[h]):
            tabulate_from(tables, h, src, hops, channels)
        tables = Tables(rule, t, h, hops, channels)
    return tables


def leaving(tables: Tables, level: int, a: int, b: int) -> tuple[int, int]:
    """The two ends of the first link by which DR's path from server `a` to server `b` of an X(level) leaves the
    X(tables.level) of `a`, where `b` is not."""
    rule, t, inner, _, _ = tables
    base, target, far = 0, b, b
    while level > inner:
        sub = t[level - 1]
        i, j = (a - base) // sub, (target - base) // sub
        if i != j:
            target = base + i * sub + gateway(rule, t, level, i, j)
            far = base + j * sub + gateway(rule, t, level, j, i)
        base += i * sub
        level -= 1
    return target, far


def length(tables: Tables, level: int, a: int, b: int) -> int:
    """Hops of DR's path from server `a` to server `b` of an X(level)."""
    size, table = tables.t[tables.level], tables.hops
    if level <= tables.level:  # most calls, where division would take most of the time
        return table[a * size + b]
    hops = 0
    while a // size != b // size:
        target, far = leaving(tables, level, a, b)
        hops += table[a % size * size + target % size] + 1
        a = far
    return hops + table[a % size * size + b % size]


def path(tables: Tables, level: int, first: int, a: int, b: int, out: MutableSequence[int], at: int) -> int:
    """Write the channels of DR's path from server `a` to server `b` of the X(level) that begins at server `first`
    into `out`, from entry `at`; return the entry after the last."""
    size, ports = tables.t[tables.level], len(tables.t) + 1
    if level > tables.level:
        while a // size != b // size:
            target, far = leaving(tables, level, a, b)
            at = short_path(tables, (first + a - a % size) * ports, a % size, target % size, out, at)
            out[at] = (first + target) * ports + common_level(tables.t, target, far)
            at += 1
            a = far
        first += a - a % size
        a %= size
        b %= size
    return short_path(tables, first * ports, a, b, out, at)


def short_path(tables: Tables, offset: int, a: int, b: int, out: MutableSequence[int], at: int) -> int:
    """path() for two servers of the table, where channels are `offset` higher than there."""
    row = (a * tables.t[tables.level] + b) * width(tables.level)
    while tables.channels[row] >= 0:
        out[at] = offset + tables.channels[row]
        row += 1
        at += 1
    return at
