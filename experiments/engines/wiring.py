"""Arrays of a DCell, beta-DCell or FiConn of any size: its links, random faults, path tables.

The functions of the engine are machine code for the connection rule of one such network.  Path
tables are as large as memory and 16 bits allow.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from math import isqrt
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from weft.daemons.core.compiled import compiled
from weft.daemons.routing.path_tables import (
    PathTables,
    tabulate_crossbar,
    tabulate_stretches,
    width,
    width_in_stretches,
)
from weft.experiments.engines import loops as loops
from weft.experiments.engines.arrays import Ints
from weft.experiments.engines.loops import Faults, Flags
from weft.topologies.core.failures import draw
from weft.topologies.recursive.ccrdn import FAMILY, RULES, Ccrdn

F = TypeVar("F", bound=Callable[..., Any])
RoutingRule = Callable[[int, int, int], int]
MOST_SERVERS = (1 << 31) - 1  # that the ends of links number, 4 bytes each
# does first .. last-1 on several threads
Share = Callable[[int, int, Callable[[int, int, int], None]], None]
MOST_TABLE_BYTES = 256 << 20
MOST_CHANNELS = 1 << 15  # that entries of a table can number
MOST_COUNTER_BYTES = 2 << 20  # of stretches, for each core: what its cache holds


def compiled_for(rule: int, function: F, **instead: Callable[..., Any]) -> F:
    """compiled(), where gateway() and far_subnetwork() are those of the rule of this number.

    A rule that ccrdn.py has built in is an argument of the code; any other is a part of it.
    """
    return compiled(function, **_functions(rule), **instead)


@cache
def _functions(rule: int) -> dict[str, Callable[..., Any]]:
    """Return the functions that replace those of ccrdn.py that look rules up."""
    own = {"own_gateway": _gateway, "own_far_subnetwork": _far_subnetwork}
    if rule not in RULES:
        return own
    gateway, far_subnetwork = RULES[rule].gateway, RULES[rule].far_subnetwork
    if RULES[rule].orders:
        gateway, far_subnetwork = by_arrays(RULES[rule].orders)
    return {**own, "chosen_gateway": gateway, "chosen_far_subnetwork": far_subnetwork}


def chosen_gateway(size: int, i: int, j: int) -> int:
    """Stand in for one of RULES, which is none here."""
    return -1


def chosen_far_subnetwork(size: int, i: int, p: int) -> int:
    """Stand in for one of RULES, which is none here."""
    return -1


def _gateway(rule: int, size: int, i: int, j: int) -> int:
    return chosen_gateway(size, i, j)


def _far_subnetwork(rule: int, size: int, i: int, p: int) -> int:
    return chosen_far_subnetwork(size, i, p)


def by_arrays(orders: Mapping[int, Sequence[int]]) -> tuple[RoutingRule, RoutingRule]:
    """The functions of ccrdn.by_permutation() on arrays, which can be compiled."""
    sizes = np.array(sorted(orders))
    start = np.concatenate(([0], np.cumsum(sizes)))
    order = np.concatenate([np.array(orders[size]) for size in sizes.tolist()])
    inverse = np.concatenate([np.argsort(orders[size]) for size in sizes.tolist()])

    def gateway(size: int, i: int, j: int) -> int:
        ahead = j - i - 1 if j > i else j - i + size
        return int(order[start[np.searchsorted(sizes, size)] + ahead])

    def far_subnetwork(size: int, i: int, p: int) -> int:
        j = i + int(inverse[start[np.searchsorted(sizes, size)] + p]) + 1
        return j if j <= size else j - size - 1

    return gateway, far_subnetwork


NO_FAULTS = Faults(np.zeros(0, np.uint8), np.zeros(0, np.uint8))


class Wiring:
    """Sizes, channels and links of one network; links are listed at first use."""

    def __init__(self, network: Ccrdn) -> None:
        self.network = network
        self.rule, self.k = network.rule, network.k
        self.t: Any = np.array(network.t)
        self.servers = network.t[-1]
        self.ports = network.k + 2
        self.channels = self.servers * self.ports

    def require_room(self, bytes_per_server: int, what: str) -> None:
        """Raise ValueError if this machine's memory does not suffice for `what`."""
        needed = self.servers * bytes_per_server
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if needed > memory or self.servers > MOST_SERVERS:
            name = f"{FAMILY[self.rule]}:n={self.network.n},k={self.k}"
            room = (
                f"this machine has {memory / 1e9:.0f} GB, and {MOST_SERVERS:,} servers "
                f"can be numbered"
            )
            raise ValueError(
                f"{name}: {what} for {self.servers:,} servers takes {needed / 1e9:,.0f} GB; {room}"
            )

    @cached_property
    def links(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int8]]:
        """Return ends and levels of all links, numbered as in the Topology of this network.

        Both ends of a level-0 link are its server.
        """
        ends = [(np.arange(self.servers, dtype=np.int32),) * 2]
        for level in range(1, self.k + 1):
            a, b = np.zeros((2, self.servers // 2), np.int32)
            count = compiled_for(self.rule, loops.links)(self.rule, self.t, level, a, b)
            ends.append((a[:count], b[:count]))
        levels = [np.full(len(a), level, np.int8) for level, (a, _) in enumerate(ends)]
        return (
            np.concatenate([a for a, _ in ends]),
            np.concatenate([b for _, b in ends]),
            np.concatenate(levels),
        )

    @cached_property
    def wired(self) -> NDArray[np.bool_]:
        """Return whether each channel exists, shape (servers, k + 2).

        FiConn's servers have no link at most of the levels.
        """
        return self._down(*self.links).reshape(-1, self.ports).astype(bool)

    def link_faults(self, rng: np.random.Generator, *, fraction: float) -> Faults:
        """Return random dead links, in both directions (CCRDN 6.4).

        They are drawn as topologies/core/failures.py draws them.
        """
        a, b, level = self.links
        failed = draw(np.arange(len(a)), fraction=fraction, generator=rng)
        return Faults(self._down(a[failed], b[failed], level[failed]), NO_FAULTS.servers)

    def server_faults(self, servers: Ints) -> Faults:
        """Return dead `servers` with all their links."""
        a, b, level = self.links
        dead = np.zeros(self.servers, np.uint8)
        dead[servers] = 1
        gone = np.flatnonzero(dead[a] | dead[b])
        return Faults(self._down(a[gone], b[gone], level[gone]), dead)

    def node_faults(self, rng: np.random.Generator, *, fraction: float) -> Faults:
        """Return random dead servers."""
        return self.server_faults(draw(np.arange(self.servers), fraction=fraction, generator=rng))

    def rack_faults(self, rng: np.random.Generator, *, fraction: float) -> Faults:
        """Return random dead X(0)s, each with all its servers."""
        n = self.network.n
        racks = draw(np.arange(self.servers // n), fraction=fraction, generator=rng)
        return self.server_faults((racks[:, None] * n + np.arange(n)).reshape(-1))

    def _down(self, a: NDArray[Any], b: NDArray[Any], level: NDArray[Any]) -> Flags:
        down = np.zeros((self.servers, self.ports), np.uint8)
        down[a, level] = 1
        down[b, np.where(level == 0, self.k + 1, level)] = 1
        return down.reshape(-1)


def require_crossbar(network: Ccrdn) -> None:
    """ValueError if not even the paths within an X(0) can be tabulated, of which there are n^2."""
    most = min(MOST_CHANNELS // (network.k + 2), isqrt(MOST_TABLE_BYTES // (2 + 2 * width(0))))
    if network.n > most:
        name = FAMILY[network.rule]
        raise ValueError(
            f"{name}: the graph engine takes n up to {most} where k is {network.k}, got {network.n}"
        )


def with_channels(network: Ccrdn, share: Share) -> PathTables:
    """The tables of the largest X(h), h < k, that may be."""
    tables = empty(network, 0, network.k + 2, width(0))
    compiled(tabulate_crossbar)(tables.t, *arrays(tables))
    return grown(network, tables, share, network.k - 1)


def with_lengths(network: Ccrdn, share: Share, most: int | None = None) -> PathTables:
    """The same without channels; at most those of an X(most)."""
    tables = empty(network, 0, network.k + 2, 0)
    compiled(tabulate_crossbar)(tables.t, *arrays(tables))
    return grown(network, tables, share, network.k - 1 if most is None else most)


def with_stretches(network: Ccrdn, share: Share) -> PathTables | None:
    """The same with stretches, as long as they can be without taking too many counters.

    None if none are as few.
    """
    ports = [network.k + 2 + size for size in network.t[: network.k]]
    most = [
        min(MOST_COUNTER_BYTES // 4 // network.t[-1], MOST_CHANNELS // size)
        for size in network.t[: network.k]
    ]
    few = [inner for inner in range(network.k) if ports[inner] <= most[inner]]
    if not few:
        return None
    inner = few[-1]
    tables = empty(network, inner, ports[inner], width_in_stretches(inner, inner))
    compiled(tabulate_stretches)(with_lengths(network, share, inner), *arrays(tables))
    return grown(network, tables, share, network.k - 1)


def grown(network: Ccrdn, tables: PathTables, share: Share, most: int) -> PathTables:
    """The tables of the largest X(h), h <= most, that may be, built from `tables`."""
    if network.t[tables.level] * tables.ports > MOST_CHANNELS:
        raise ValueError(
            f"{network.t[tables.level]} servers of {tables.ports} channels: more than 16 "
            f"bits can number"
        )
    for level in range(tables.level + 1, most + 1):
        size, entries = network.t[level], 2 * tables.width
        if size * tables.ports > MOST_CHANNELS or size**2 * (2 + 2 * entries) > MOST_TABLE_BYTES:
            break
        below, tables = tables, empty(network, level, tables.ports, entries)
        share(0, size, tabulation(below, tables))
    return tables


def tabulation(below: PathTables, tables: PathTables) -> Callable[[int, int, int], None]:
    """Fills in `tables` for the servers first .. last-1, from those of a smaller X(h)."""

    def task(first: int, last: int, _: int) -> None:
        compiled_for(below.rule, loops.tabulate)(below, tables.level, first, last, *arrays(tables))

    return task


def empty(network: Ccrdn, level: int, ports: int, entries: int) -> PathTables:
    """Tables of an X(level) to be filled in, with so many entries for each path."""
    rows, t = network.t[level] ** 2, np.array(network.t)
    columns: Any = (
        np.zeros(rows, np.uint8),
        np.zeros(rows, np.uint8),
        np.zeros(rows * entries, np.int16),
    )
    return PathTables(network.rule, cast(Any, t), level, ports, entries, *columns)


def arrays(tables: PathTables) -> tuple[Any, Any, Any]:
    """Hops, counts and channels of `tables`."""
    return tables.hops, tables.counts, tables.channels
