"""Tables of DR's paths within small sub-networks of an X(k), of which longer paths are composed.

A proxy search measures some hundred DR paths for each pair of servers.  All X(m) of a network are
alike: one table of an X(m) has the paths within any of them.  A path within an X(m+1) is two of
these paths and a link.

A channel is one direction of a link, numbered server * (k + 2) + port.  Port 0 leads from a server
to its crossbar, port l >= 1 over its level-l link, port k + 1 from the crossbar to the server.

To count flows faster, a stretch represents all channels of a path within an X(m); counts are
expanded at the end.  The stretch to server b of the X(m) has the number
server * (k + 2 + t_m) + k + 2 + b.  Links above level m keep their ports.

The same source runs uncompiled on tuples and bytes, and compiled on arrays.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, MutableSequence, Sequence
from typing import Any, NamedTuple

from weft.topologies.recursive.ccrdn import common_level, gateway

# (into, value, channel) -> next value: operation of path() at each channel
StepFunction = Callable[[Any, int, int], int]


def write(out: MutableSequence[int], index: int, channel: int) -> int:
    """Write the channel into `out`, as a step of path(); return the next index."""
    out[index] = channel
    return index + 1


def add(flows: MutableSequence[int], more: int, channel: int) -> int:
    """Add `more` to the flows on the channel, as a step of path(); return `more`."""
    flows[channel] += more
    return more


def fullest(load: Sequence[int], most: int, channel: int) -> int:
    """Return the higher of `most` and the channel's load, as a step of path()."""
    return max(most, load[channel])


class PathTables(NamedTuple):
    """DR paths between the servers 0 .. t[level]-1 of an X(level) within an X(k).

    rule, t: as in topologies/recursive/ccrdn.py.
    ports: channels, or stretches, of a server.
    width: entries of `channels` for each path.
    hops: lengths; entry a * t[level] + b is that of the path from server a to server b.
    counts: number of channels, or stretches, of each path.
    channels: those of path i from entry i * width on; empty for tables of lengths.
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
    """Return room for the channels of a DR path within an X(level).

    Two for each of 2^level hops through crossbars, one for each of the links between them.
    """
    return 3 << level


def width_in_stretches(level: int, inner: int) -> int:
    """Return room for 2^(level - inner) stretches within an X(inner) and the links between them."""
    return 2 << (level - inner)


def tabulate_crossbar(
    t: Sequence[int],
    hops: MutableSequence[int],
    counts: MutableSequence[int],
    channels: MutableSequence[int],
) -> None:
    """Fill the tables of an X(0)."""
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
    """Fill the tables of an X(m) whose paths are one stretch each, from their lengths."""
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
    """Fill the tables of an X(level) for paths from server `src`, from those of a smaller X(h)."""
    size, width = below.t[level], len(channels) // len(hops)
    for dst in range(size):
        row = src * size + dst
        hops[row] = length(below, level, src, dst)
        if len(channels):
            counts[row] = (
                path(below, level, 0, src, dst, write, channels, row * width) - row * width
            )


def tabulate(rule: int, t: Sequence[int], level: int, *, with_channels: bool = False) -> PathTables:
    """Return the tables of an X(level) in plain Python, for up to a few hundred servers."""
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
    """Return both ends of the link by which DR's path from `a` to `b` leaves the X(tables.level).

    Args:
        tables: of a smaller sub-network, which has `a` but not `b`.
        level: of the sub-network that has both.
        a: first server.
        b: last server.
    """
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
    """Return the hops of DR's path from server `a` to server `b` of an X(level)."""
    size, table = tables.t[tables.level], tables.hops
    if level <= tables.level:  # most calls; a division would dominate their time
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
    """Apply value = step(into, value, channel) along DR's path; return the last value.

    The path leads from server `a` to server `b` of the X(level) that begins at server `first`.
    """
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
    """Apply path() to two servers of the table, with channels `offset` higher."""
    row = a * tables.t[tables.level] + b
    first = row * tables.width
    for i in range(first, first + tables.counts[row]):
        value = step(into, value, offset + tables.channels[i])
    return value
