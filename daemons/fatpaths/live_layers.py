"""Next hops of layers with dead links, such that packets reach every reachable router.

A path of a layer is intact if all its links are alive.  The hop of router u to router t in a layer
is the first of

    the layer's own hop, if its path from u is intact;
    the live neighbour nearest to t whose path in this layer is intact;
    a neighbour that is nearer to t over live links.

There is no loop: a packet at a router with an intact path stays on it; any other packet goes to
such a router at once, or comes nearer to t.  A router that loses a link applies the second rule at
once, because routers with intact paths forward by them in any case.  Only the third rule needs
common knowledge.  Ties are broken by layer and destination, to spread the load.  In FatPaths
(section V-G) senders leave a broken layer; here the layer goes on.

Tables come from layers.py, as one row of bytes that daemons share: the node number of router 0 and
the number of routers, 32 bits each, then router numbers by layer, destination and router, 16 bits
each.
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
Live = Sequence[Set[int]]  # by router, its neighbours over live links


def packed(tables: NDArray[np.int32], first: int) -> bytes:
    """Return tables of shape (layers, routers, routers) as bytes for LayerTables.

    Args:
        tables: hops, by layer, destination and router.
        first: node number of router 0.

    Raises:
        ValueError: more than MOST_ROUTERS routers.
    """
    routers = tables.shape[1]
    if routers > MOST_ROUTERS:
        raise ValueError(
            f"layered routing: daemons know at most {MOST_ROUTERS} routers, got {routers}"
        )
    return HEADER.pack(first, routers) + tables.astype("uint16").tobytes()


class LayerTables:
    """Forwarding tables of all layers of a network, from packed().

    first: node number of router 0.
    routers: number of routers.
    layers: number of layers.
    """

    def __init__(self, tables: bytes) -> None:
        self.first, self.routers = HEADER.unpack_from(tables)
        self._next = memoryview(tables)[HEADER.size :].cast("H")
        self.layers = len(self._next) // self.routers**2

    def hop(self, layer: int, t: int, u: int) -> int:
        """Return the router after `u` on the path to `t`, u != t."""
        return int(self._next[(layer * self.routers + t) * self.routers + u])

    def links(self, layer: int, t: int, u: int) -> Iterator[tuple[int, int]]:
        """Yield the links of the path from `u` to `t`, in order, as pairs of routers."""
        base = (layer * self.routers + t) * self.routers
        while u != t:
            after = self._next[base + u]
            yield u, after
            u = after

    def intact(self, layer: int, t: int, u: int, live: Live) -> int:
        """Return the number of links of the path from `u` to `t`; -1 if one of them is dead."""
        count = 0
        for a, b in self.links(layer, t, u):
            if b not in live[a]:
                return -1
            count += 1
        return count

    def detour(self, layer: int, t: int, u: int, live: Live) -> int | None:
        """Return the live neighbour of `u` with the shortest intact path to `t`.

        None if there is none.  The path of `u` itself is not intact.
        """
        nearest, least = None, (0, 0)
        for v in live[u]:
            links = self.intact(layer, t, v, live)
            if links >= 0:
                cost = links, mix(mix(layer, t), v)
                if nearest is None or cost < least:
                    nearest, least = v, cost
        return nearest

    def live_hop(self, layer: int, t: int, u: int, live: Live, nearer: Sequence[int]) -> int | None:
        """Return the next hop of `u` for packets to `t`; None if `t` is unreachable.

        `nearer` are the neighbours of `u` that are nearer to `t` over live links.
        """
        if self.intact(layer, t, u, live) >= 0:
            return self.hop(layer, t, u)
        detour = self.detour(layer, t, u, live)
        if detour is None and nearer:
            return nearer[mix(layer, t) % len(nearer)]
        return detour

    def live_path(self, layer: int, t: int, s: int, live: Live) -> list[int]:
        """Return the routers from `s` to `t`, both included, if all know the live links.

        The list is empty if `t` is unreachable.
        """
        path = [s]
        while self.intact(layer, t, path[-1], live) < 0:
            after = self.detour(layer, t, path[-1], live)
            if after is None:
                adjacency = {router: sorted(near) for router, near in enumerate(live)}
                nearer = shortest.next_hops(adjacency, path[-1]).get(t, ())
                after = self.live_hop(layer, t, path[-1], live, nearer)
            if after is None:
                return []
            path.append(after)
        return path + [after for _, after in self.links(layer, t, path[-1])]

    def live_paths(self, t: int, s: int, live: Live) -> dict[int, list[int]]:
        """Return the path from `s` to `t` by each layer; none if `t` is unreachable."""
        paths = {layer: self.live_path(layer, t, s, live) for layer in range(self.layers)}
        return {layer: way for layer, way in paths.items() if way}
