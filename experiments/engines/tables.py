"""Path tables of the graph engine, as large as memory and 16 bits allow."""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from typing import Any, cast

import numpy as np

from weft.daemons.core.compiled import compiled
from weft.daemons.routing.path_tables import (
    PathTables,
    tabulate_crossbar,
    tabulate_stretches,
    width,
    width_in_stretches,
)
from weft.experiments.engines import loops as loops
from weft.experiments.engines.wiring import compiled_for
from weft.topologies.recursive.ccrdn import FAMILY, Ccrdn

# does first .. last-1 on several threads
Share = Callable[[int, int, Callable[[int, int, int], None]], None]

MOST_TABLE_BYTES = 256 << 20
MOST_CHANNELS = 1 << 15  # that entries of a table can number
MOST_COUNTER_BYTES = 2 << 20  # of stretches, for each core: what its cache holds


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
