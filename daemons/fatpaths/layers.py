"""Layered routing: n forwarding functions sigma_1 .. sigma_n (FatPaths, section V).

Routers are numbered from 0; router i is the node `servers` + i of its Topology.  A graph is two
arrays: the routers that u is joined to are peer[start[u]] .. peer[start[u + 1] - 1], in order of
number.

Tables are one array, shape (layers, routers, routers): tables[i, t, u] is the router after u on the
way to t in layer i, and tables[i, t, t] is t.  Layer 0, the paper's sigma_1, has a shortest path
for every pair.

A router without a path to t in layer i takes layer 0's hop.  That is free of loops: on the path of
layer i all routers have one, so a packet that has come to it stays on it; before, every hop leads
nearer to t on the whole graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from weft.topologies.core.topology import Topology

IntegerArray = NDArray[np.int64]
ArcFlags = NDArray[np.bool_]
RouterTable = NDArray[np.int32]

Compiler = Callable[[Any], Any]

UNREACHED, UNSET = 127, -1


def as_it_is(function: Any) -> Any:
    """Return `function` as it is, without a compiler."""
    return function


class LayerOptions(NamedTuple):
    """Parameters of a construction.

    layers: n, layer 0 counted.
    rho: fraction of the links in a layer of listing 1.
    paths: most paths of a layer of listing 2, M, as a multiple of the number of routers.
    extra_links: length of the paths of listing 2 beyond the diameter, L_min - D.
    """

    layers: int
    rho: float = 0.6
    paths: float = 1.0
    extra_links: int = 1


class RouterArrays(NamedTuple):
    """Routers and their links as arrays, see the module."""

    start: IntegerArray
    peer: IntegerArray

    @classmethod
    def of(cls, topology: Topology) -> RouterArrays:
        """Return the routers of `topology` and their healthy links.

        ValueError if its servers forward.
        """
        if topology.server_centric:
            raise ValueError(
                f"layered routing needs a switch network, and the servers of "
                f"{topology.spec} forward"
            )
        links = topology.links[~topology.failed & (topology.links[:, 0] >= topology.servers)]
        ends = links[:, [0, 2]] - topology.servers
        near, far = np.concatenate([ends, ends[:, ::-1]]).T
        order = np.lexsort((far, near))
        return cls(np.searchsorted(near[order], np.arange(topology.switches + 1)), far[order])

    @property
    def routers(self) -> int:
        return len(self.start) - 1

    def arcs_of(self, u: int) -> slice:
        """Return where the arcs lie that leave router `u`."""
        return slice(self.start[u], self.start[u + 1])

    @property
    def tail(self) -> IntegerArray:
        """Return the router that each arc leaves."""
        return np.repeat(np.arange(self.routers), np.diff(self.start))

    def as_lists(self) -> Any:
        """Return the same as lists, which code that is not compiled reads faster."""
        return RouterArrays(self.start.tolist(), self.peer.tolist())

    def back(self) -> IntegerArray:
        """Return, for each arc, the opposite arc of the same link."""
        return np.lexsort((self.tail, self.peer))

    def arc_of(self) -> RouterTable:
        """Return the arc between each two neighbours, shape (routers, routers); -1 elsewhere."""
        arcs = np.full((self.routers, self.routers), UNSET, dtype=np.int32)
        arcs[self.tail, self.peer] = np.arange(len(self.peer))
        return arcs


def everything(graph: RouterArrays) -> ArcFlags:
    """Return all arcs of `graph`."""
    return np.ones(len(graph.peer), dtype=bool)


def distances(graph: RouterArrays, arcs: ArcFlags) -> NDArray[np.int8]:
    """Return the hops from u to t over `arcs` alone, shape (routers u, routers t), or UNREACHED."""
    near = [graph.peer[own][arcs[own]] for own in map(graph.arcs_of, range(graph.routers))]
    hops_to = np.full((graph.routers, graph.routers), UNREACHED, dtype=np.int8)
    np.fill_diagonal(hops_to, 0)
    reached = np.packbits(hops_to == 0, axis=1)  # a bit for each t
    for hops in range(1, UNREACHED):
        further = np.stack([np.bitwise_or.reduce(reached[peers], axis=0) for peers in near])
        new = np.unpackbits(further & ~reached, axis=1, count=graph.routers).view(np.bool_)
        if not new.any():
            break
        hops_to[new] = hops
        reached |= further
    return hops_to


def intact_distances(topology: Topology) -> NDArray[np.uint8]:
    """Return the hops between routers of `topology` without failures, shape (routers, routers)."""
    graph = RouterArrays.of(replace(topology, failed=topology.failed & False))
    return distances(graph, everything(graph)).astype(np.uint8)


def next_hops(graph: RouterArrays, arcs: ArcFlags, generator: Generator) -> RouterTable:
    """Return a table of shortest paths over `arcs`, shape (routers t, routers u).

    Ties are broken at random; -1 without a path.
    """
    far = distances(graph, arcs)
    table = np.full((graph.routers, graph.routers), UNSET, dtype=np.int32)
    for u in range(graph.routers):
        own = graph.arcs_of(u)
        peers = graph.peer[own][arcs[own]]
        if len(peers):
            draw = generator.random((len(peers), graph.routers), dtype=np.float32)
            draw -= far[peers] != far[u] - 1  # below the draw of every peer that is nearer
            best = draw.argmax(axis=0)
            reached = (far[u] < UNREACHED) & (far[u] > 0)
            table[reached, u] = peers[best[reached]]
    np.fill_diagonal(table, np.arange(graph.routers))
    return table


def first_layer(graph: RouterArrays, generator: Generator) -> RouterTable:
    """Return layer 0, a shortest path for every pair; ValueError if some pair has none."""
    table = next_hops(graph, everything(graph), generator)
    if (table < 0).any():
        raise ValueError("layered routing: the routers are not connected")
    return table


def with_fallback(table: RouterTable, first: RouterTable) -> RouterTable:
    """Return `table`, shape (routers t, routers u), with missing hops from layer 0, `first`."""
    return np.where(table < 0, first, table)


def tables(graph: RouterArrays, layers: Sequence[ArcFlags], generator: Generator) -> RouterTable:
    """Return the tables of layer 0 and of each of `layers`, sets of arcs."""
    first = first_layer(graph, generator)
    return np.stack(
        [first, *(with_fallback(next_hops(graph, arcs, generator), first) for arcs in layers)]
    )


def path(table: RouterTable, src: int, dst: int) -> list[int]:
    """Return the routers from `src` to `dst` by one layer's table, shape (routers t, routers u).

    ValueError if it loops.
    """
    routers = [src]
    while routers[-1] != dst:
        routers.append(int(table[dst, routers[-1]]))
        if len(routers) > len(table):
            raise ValueError(f"the path from router {src} to router {dst} loops")
    return routers


def distinct_paths(tables: RouterTable) -> IntegerArray:
    """Return the number of different paths of each ordered pair in all layers, 0 for t = s.

    The shape is (routers t, routers s).
    """
    layers, routers, _ = tables.shape
    keys = np.zeros(tables.shape, dtype=np.uint64)
    t = np.arange(routers)[:, None]
    for layer in range(layers):
        place = np.broadcast_to(np.arange(routers), (routers, routers))
        while (going := place != t).any():
            place = tables[layer][t, place]
            hashed = (keys[layer] + place.astype(np.uint64) + np.uint64(1)) * np.uint64(
                0x9E3779B97F4A7C15
            )
            keys[layer][going] = (hashed ^ hashed >> np.uint64(29))[going]
    keys.sort(axis=0)
    counts = 1 + (keys[1:] != keys[:-1]).sum(axis=0, dtype=np.int64)
    counts[np.diag_indices(routers)] = 0
    return np.asarray(counts, dtype=np.int64)
