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

from daemons.routing.dr import next_hop
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


def tabulate_from(
    rule: int, t: Sequence[int], level: int, src: int, hops: MutableSequence[int], channels: MutableSequence[int]
) -> None:
    """Fill in the entries of `hops` and, unless it is empty, `channels` for all paths from server `src`."""
    ports = len(t) + 1
    for dst in range(t[level]):
        row = src * t[level] + dst
        at = row * width(level)
        cur, length = src, 0
        while cur != dst:
            to = next_hop(rule, t, cur, dst)
            if len(channels):
                link = common_level(t, cur, to)
                channels[at] = cur * ports + link
                at += 1
                if link == 0:
                    channels[at] = (to + 1) * ports - 1
                    at += 1
            cur = to
            length += 1
        hops[row] = length
        if len(channels):
            channels[at] = -1


def tabulate(rule: int, t: Sequence[int], level: int, *, with_channels: bool = False) -> Tables:
    """The tables of an X(level), in plain Python: for levels of a few hundred servers at the most."""
    hops = bytearray(t[level] ** 2)
    channels = array("l", bytes(8 * len(hops) * width(level) if with_channels else 0))
    for src in range(t[level]):
        tabulate_from(rule, t, level, src, hops, channels)
    return Tables(rule, t, level, hops, channels)


def length(tables: Tables, level: int, a: int, b: int) -> int:
    """Hops of DR's path from server `a` to server `b` of an X(level)."""
    if level <= tables.level:
        return tables.hops[a * tables.t[tables.level] + b]
    return long_length(tables, level, a, b)


def long_length(tables: Tables, level: int, a: int, b: int) -> int:
    """length(), where the table ends: on its own, since only what does not recur can be compiled in line."""
    rule, t, inner, hops, _ = tables
    if level <= inner:
        return hops[a * t[inner] + b]
    sub = t[level - 1]
    i, j = a // sub, b // sub
    p, q = a - i * sub, b - j * sub
    if i == j:
        return long_length(tables, level - 1, p, q)
    near, far = gateway(rule, t, level, i, j), gateway(rule, t, level, j, i)
    return long_length(tables, level - 1, p, near) + 1 + long_length(tables, level - 1, far, q)


def path(tables: Tables, level: int, base: int, a: int, b: int, out: MutableSequence[int], at: int) -> int:
    """Write the channels of DR's path from server `a` to server `b` of the X(level) that begins at server `base` into
    `out`, from entry `at`; return the entry after the last."""
    if level <= tables.level:
        return short_path(tables, base, a, b, out, at)
    return long_path(tables, level, base, a, b, out, at)


def short_path(tables: Tables, base: int, a: int, b: int, out: MutableSequence[int], at: int) -> int:
    """path(), by the table alone."""
    offset = base * (len(tables.t) + 1)
    row = (a * tables.t[tables.level] + b) * width(tables.level)
    while tables.channels[row] >= 0:
        out[at] = offset + tables.channels[row]
        row += 1
        at += 1
    return at


def long_path(tables: Tables, level: int, base: int, a: int, b: int, out: MutableSequence[int], at: int) -> int:
    """path(), where the table ends."""
    if level <= tables.level:
        return short_path(tables, base, a, b, out, at)
    rule, t = tables.rule, tables.t
    sub = t[level - 1]
    i, j = a // sub, b // sub
    p, q = a - i * sub, b - j * sub
    if i == j:
        return long_path(tables, level - 1, base + i * sub, p, q, out, at)
    near, far = gateway(rule, t, level, i, j), gateway(rule, t, level, j, i)
    at = long_path(tables, level - 1, base + i * sub, p, near, out, at)
    out[at] = (base + i * sub + near) * (len(t) + 1) + level
    return long_path(tables, level - 1, base + j * sub, far, q, out, at + 1)
