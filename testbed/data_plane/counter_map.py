"""Counters that a program keeps for each processor, read as their sums."""

from __future__ import annotations

import struct
from typing import Protocol

from weft.testbed.linux import libbpf


class MapSource(Protocol):
    """A source of maps: an object just loaded, or a running program."""

    def map(self, name: str, key: str, value: str) -> libbpf.Map: ...
    def entries(self, name: str) -> int: ...
    def close(self) -> None: ...


class CounterMap:
    """The per-processor array `name` of `maps`, with `count` 64-bit counters in an entry."""

    def __init__(self, maps: MapSource, name: str, count: int) -> None:
        fd = maps.map(name, "=I", f"={count}Q").fd
        every = struct.Struct(f"={libbpf.possible_cpus() * count}Q")
        self._entries = libbpf.Map(fd, struct.Struct("=I"), every)
        self._count = count

    def sums(self, entry: int = 0) -> list[int]:
        """Return the counters of an entry, summed over processors."""
        values = self._entries[entry,]
        return [sum(values[counter :: self._count]) for counter in range(self._count)]
