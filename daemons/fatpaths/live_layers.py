"""What a router does in each layer while links are dead, so that packets reach every router that
can be reached.

A path of a layer is intact if all its links live.  The hop of router u to router t in a layer is

    the layer's own, if its path from u is intact;
    else a live neighbour whose path in this layer is intact, the nearest to t of them;
    else a neighbour that is nearer to t over the live links.

There is no loop.  What comes to a router with an intact path stays on it, for the rest of it is
intact, too.  Elsewhere a packet either goes to such a router at once or comes nearer to t.  The
second rule needs no agreement: a router with an intact path forwards by it whether it has heard of
the failure or not, so that who sees its own link die can act before anybody else knows.  Only the
third one does.

Of several neighbours that are as good, layers and destinations take different ones, so that not all
layers fall back to the same links.  FatPaths (section V-G) lets senders leave a layer that is
broken; here the layer goes on, and the sender need not know.

Tables are what layers.py makes, in one row of bytes, so that daemons need no array library and
share them: the node that is router 0 and how many routers there are, as 32-bit integers; then
router numbers, counted from 0, by layer, destination and router, as 16-bit ones.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence, Set
from typing import TYPE_CHECKING

from weft.daemons.routing import shortest
from weft.daemons.routing.selection import mix

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HEADER = struct.Struct("=2I")
MOST_ROUTERS = 1 << 16
Live = Sequence[Set[int]]  # by router, those to which it has a live link


def packed(tables: NDArray[np.int32], first: int) -> bytes:
    """Tables of shape (layers, routers, routers) as LayerTables reads them, `first` being the node
    that is router 0; ValueError for more routers than 16 bits count."""
    routers = tables.shape[1]
    if routers > MOST_ROUTERS:
        raise ValueError(
            f"layered routing: daemons know at most {MOST_ROUTERS} routers, got {routers}"
        )
    return HEADER.pack(first, routers) + tables.astype("uint16").tobytes()


class LayerTables:
    """The forwarding tables of all layers of a network, from packed().

    first: the node that is router 0.
    routers, layers: how many there are.
    """

    def __init__(self, tables: bytes) -> None:
        self.first, self.routers = HEADER.unpack_from(tables)
        self._next = memoryview(tables)[HEADER.size :].cast("H")
        self.layers = len(self._next) // self.routers**2

    def hop(self, layer: int, t: int, u: int) -> int:
        """The router after `u` on the way to `t`, u != t."""
        found: int = self._next[(layer * self.routers + t) * self.routers + u]
        return found

    def links(self, layer: int, t: int, u: int) -> Iterator[tuple[int, int]]:
        """The links on the way from `u` to `t`, in order, as pairs of routers."""
        base = (layer * self.routers + t) * self.routers
        while u != t:
            after = self._next[base + u]
            yield u, after
            u = after

    def intact(self, layer: int, t: int, u: int, live: Live) -> int:
        """How many links the path from `u` to `t` has; -1 if one of them is dead."""
        count = 0
        for a, b in self.links(layer, t, u):
            if b not in live[a]:
                return -1
            count += 1
        return count

    def detour(self, layer: int, t: int, u: int, live: Live) -> int | None:
        """The live neighbour of `u` whose path to `t` is intact and shortest, None if there is
        none; for who has no intact path itself."""
        found, least = None, (0, 0)
        for v in live[u]:
            links = self.intact(layer, t, v, live)
            if links >= 0:
                cost = links, mix(mix(layer, t), v)
                if found is None or cost < least:
                    found, least = v, cost
        return found

    def live_hop(self, layer: int, t: int, u: int, live: Live, nearer: Sequence[int]) -> int | None:
        """The router to which `u` sends what is for `t`; None if `t` cannot be reached.

        nearer: the neighbours of `u` that are nearer to `t` over live links.
        """
        if self.intact(layer, t, u, live) >= 0:
            return self.hop(layer, t, u)
        found = self.detour(layer, t, u, live)
        if found is None and nearer:
            found = nearer[mix(layer, t) % len(nearer)]
        return found

    def live_path(self, layer: int, t: int, s: int, live: Live) -> list[int]:
        """The routers on the way from `s` to `t`, both included, when all know the live links; none
        if there is no way."""
        found = [s]
        while self.intact(layer, t, found[-1], live) < 0:
            after = self.detour(layer, t, found[-1], live)
            if after is None:
                adjacency = {router: sorted(near) for router, near in enumerate(live)}
                after = self.live_hop(
                    layer, t, found[-1], live, shortest.next_hops(adjacency, found[-1]).get(t, ())
                )
            if after is None:
                return []
            found.append(after)
        return found + [after for _, after in self.links(layer, t, found[-1])]
