"""The links of a DCell, beta-DCell or FiConn of any size as arrays, and random faults of them."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.experiments.engines import loops as loops
from weft.experiments.engines.loops import Faults, Flags
from weft.experiments.engines.rules import compiled_for
from weft.topologies.core.failures import draw
from weft.topologies.recursive.ccrdn import FAMILY, Ccrdn

MOST_SERVERS = (1 << 31) - 1  # that the ends of links number, 4 bytes each


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

    def server_faults(self, servers: NDArray[np.int64]) -> Faults:
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
