"""DR's paths within the small sub-networks of an X(k), tabulated: the bricks that longer paths are
built of.

A proxy search measures some hundred DR paths for every pair of servers.  All X(m) of a network are
alike, so one table of an X(m) gives, by look-ups, the paths within any of them; a path within an
X(m+1) is two of them and a link.

A channel is one direction of a link, numbered server * (k + 2) + port: port 0 leads from the server
to its crossbar, port l >= 1 over its level-l link, and port k + 1 is the way from the crossbar to
the server.

Where flows are only to be counted, a whole path within an X(m) can stand for its channels, and be
taken apart when all have been: a stretch, numbered server * (k + 2 + t_m) + k + 2 + b for the path
to server b of the X(m).  Links above level m keep their ports.

Written so that the same source runs as it stands, on tuples and bytes, and compiled, on arrays.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, MutableSequence, Sequence
from typing import Any, NamedTuple

from weft.topologies.recursive.ccrdn import common_level, gateway

StepFunction = Callable[
    [Any, int, int], int
]  # what path() does at each channel: of `into`, the value so far, the channel


def write(out: MutableSequence[int], at: int, channel: int) -> int:
    """A step of path(): write the channels into `out` from entry `at`; gives the entry after the
    last."""
    out[at] = channel
    return at + 1


def add(flows: MutableSequence[int], more: int, channel: int) -> int:
    """A step of path(): add `more` to the flows on each channel; gives `more`."""
    flows[channel] += more
    return more


def fullest(load: Sequence[int], most: int, channel: int) -> int:
    """A step of path(): the greatest load on the channels, or `most` if that is greater."""
    return max(most, load[channel])


class PathTables(NamedTuple):
    """An X(k), and the DR paths between the servers 0 .. t[level]-1 of an X(level).

    rule, t: as in topologies/recursive/ccrdn.py.
    hops: entry a * t[level] + b is the length of the path from server a to server b.
    counts, channels: so many channels, or stretches, of the path are entries (a * t[level] + b) *
        width and following; there are none where only lengths are asked for.
    ports: how many channels, or stretches, a server has.
    """

    rule: int
    t: Sequence[int]
    level: int
    ports: int
    width: int
    hops: Sequence[int]
    counts: Sequence[int]
    channels: Sequence[int]


def width(level: int) -> int:
    """Room for the channels of a DR path within an X(level), at most one less: two for each of
    2^level hops through crossbars, one for each of the 2^level - 1 links between them."""
    return 3 << level


def width_in_stretches(level: int, inner: int) -> int:
    """The same for stretches within an X(inner): 2^(level - inner) of them and the links
    between."""
    return 2 << (level - inner)


def tabulate_crossbar(
    t: Sequence[int],
    hops: MutableSequence[int],
    counts: MutableSequence[int],
    channels: MutableSequence[int],
) -> None:
    """Fill in the tables of an X(0)."""
    n, ports = t[0], len(t) + 1
    for row in range(n * n):
        src, dst = row // n, row % n
        hops[row] = int(src != dst)
        if len(channels) and src != dst:
            channels[row * width(0)] = src * ports
            channels[row * width(0) + 1] = (dst + 1) * ports - 1
            counts[row] = 2


def tabulate_stretches(
    lengths: PathTables,
    hops: MutableSequence[int],
    counts: MutableSequence[int],
    channels: MutableSequence[int],
) -> None:
    """Fill in the tables of an X(m) whose paths are one stretch each, given their lengths."""
    t, size = lengths.t, lengths.t[lengths.level]
    ports = len(t) + 1 + size
    for src in range(size):
        for dst in range(size):
            row = src * size + dst
            hops[row] = lengths.hops[row]
            if src != dst:
                channels[row * 2] = src * ports + len(t) + 1 + dst
                counts[row] = 1


def tabulate_from(
    below: PathTables,
    level: int,
    src: int,
    hops: MutableSequence[int],
    counts: MutableSequence[int],
    channels: MutableSequence[int],
) -> None:
    """Fill in the tables of an X(level) for the paths from server `src`, given those of a smaller
    X(h)."""
    size, width = below.t[level], len(channels) // len(hops)
    for dst in range(size):
        row = src * size + dst
        hops[row] = length(below, level, src, dst)
        if len(channels):
            counts[row] = (
                path(below, level, 0, src, dst, write, channels, row * width) - row * width
            )


def tabulate(rule: int, t: Sequence[int], level: int, *, with_channels: bool = False) -> PathTables:
    """The tables of an X(level), in plain Python: for levels of a few hundred servers at the
    most."""
    width_of = [width(h) * with_channels for h in range(level + 1)]
    columns = (
        bytearray(t[0] ** 2),
        bytearray(t[0] ** 2),
        array("l", bytes(8 * t[0] ** 2 * width_of[0])),
    )
    tabulate_crossbar(t, *columns)
    for h in range(1, level + 1):
        below = PathTables(rule, t, h - 1, len(t) + 1, width_of[h - 1], *columns)
        columns = (
            bytearray(t[h] ** 2),
            bytearray(t[h] ** 2),
            array("l", bytes(8 * t[h] ** 2 * width_of[h])),
        )
        for src in range(t[h]):
            tabulate_from(below, h, src, *columns)
    return PathTables(rule, t, level, len(t) + 1, width_of[level], *columns)


def leaving(tables: PathTables, level: int, a: int, b: int) -> tuple[int, int]:
    """The two ends of the first link by which DR's path from server `a` to server `b` of an
    X(level) leaves the X(tables.level) of `a`, where `b` is not."""
    rule, t, inner = tables.rule, tables.t, tables.level
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


def length(tables: PathTables, level: int, a: int, b: int) -> int:
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


def path(
    tables: PathTables,
    level: int,
    first: int,
    a: int,
    b: int,
    step: StepFunction,
    into: Any,
    value: int,
) -> int:
    """value = step(into, value, channel) for each channel of DR's path from server `a` to server
    `b` of the X(level) that begins at server `first`, in their order; return the last value."""
    size, ports = tables.t[tables.level], tables.ports
    if level > tables.level:
        while a // size != b // size:
            target, far = leaving(tables, level, a, b)
            value = short_path(
                tables, (first + a - a % size) * ports, a % size, target % size, step, into, value
            )
            value = step(
                into, value, (first + target) * ports + common_level(tables.t, target, far)
            )
            a = far
        first += a - a % size
        a %= size
        b %= size
    elif level < tables.level:  # stretches are numbered in all of the X(tables.level)
        shift = first % size
        first, a, b = first - shift, a + shift, b + shift
    return short_path(tables, first * ports, a, b, step, into, value)


def short_path(
    tables: PathTables, offset: int, a: int, b: int, step: StepFunction, into: Any, value: int
) -> int:
    """path() for two servers of the table, where channels are `offset` higher than there."""
    row = a * tables.t[tables.level] + b
    first = row * tables.width
    for i in range(first, first + tables.counts[row]):
        value = step(into, value, offset + tables.channels[i])
    return value
