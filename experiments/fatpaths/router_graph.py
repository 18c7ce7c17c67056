"""The routers of a switch network and the links between them, as arrays that compiled code reads.

Routers are numbered from 0 here: router i is the node `servers` + i of its Topology.  Every link is
two arcs, one each way; the arcs that leave router u are start[u] .. start[u + 1] - 1, in order of
the router that they lead to.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from weft.daemons.core.compiled import compiled
from weft.experiments.engines.arrays import Ints
from weft.topologies.core.topology import Topology, require_one_plane

UNREACHED = 127  # a distance: no path


@dataclass(frozen=True, eq=False)
class RouterGraph:
    """Routers, and two arcs for each link between them.

    start: first arc of each router, shape (routers + 1,).
    peer: router that each arc leads to.
    edge: link of each arc, which both of its arcs share.
    hosts: number of hosts of each router.
    """

    start: Ints
    peer: Ints
    edge: Ints
    hosts: Ints

    @classmethod
    def of(cls, topology: Topology) -> RouterGraph:
        """Return the graph of the routers of `topology`, without failed links.

        Raises:
            ValueError: its servers forward.
        """
        if topology.server_centric:
            raise ValueError(f"{topology.spec} has no routers, its servers forward")
        require_one_plane("the graph of routers", topology)
        live = topology.links[~topology.failed]
        hosts = np.bincount(
            live[live[:, 0] < topology.servers, 2] - topology.servers, minlength=topology.switches
        )
        ends = live[live[:, 0] >= topology.servers][:, [0, 2]] - topology.servers
        return cls.from_edges(ends, hosts)

    @classmethod
    def from_edges(cls, ends: Ints, hosts: Ints) -> RouterGraph:
        """The graph of the links `ends`, shape (links, 2), numbered in the order of their ends."""
        low, high = np.minimum(*ends.T), np.maximum(*ends.T)
        order = np.argsort(low * len(hosts) + high)
        ends = np.stack([low[order], high[order]], axis=1)
        near, far = np.concatenate([ends, ends[:, ::-1]]).T
        order = np.argsort(near * len(hosts) + far)
        number = np.tile(np.arange(len(ends)), 2)
        return cls(
            start=np.searchsorted(near[order], np.arange(len(hosts) + 1)),
            peer=far[order].copy(),
            edge=number[order],
            hosts=hosts.astype(np.int64),
        )

    @property
    def routers(self) -> int:
        return len(self.hosts)

    @property
    def edges(self) -> int:
        return len(self.peer) // 2

    @cached_property
    def tail(self) -> Ints:
        """The router that each arc leaves."""
        return np.repeat(np.arange(self.routers), np.diff(self.start))

    @property
    def network_radix(self) -> int:
        """k': the links to other routers of a router with hosts, the most if they differ."""
        return int(np.diff(self.start)[self.hosts > 0].max())

    @cached_property
    def endpoints(self) -> Ints:
        """The routers with hosts: between them leads what is measured."""
        return np.flatnonzero(self.hosts)

    @cached_property
    def _shortest(self) -> tuple[NDArray[np.int8], Ints]:
        distance = np.full((self.routers, self.routers), UNREACHED, dtype=np.int8)
        count = np.zeros((self.routers, self.routers), dtype=np.int64)
        compiled(shortest_paths)(self.start, self.peer, distance, count)
        return distance, count

    @property
    def distance(self) -> NDArray[np.int8]:
        """Links on a shortest path between any two routers, UNREACHED if there is none."""
        return self._shortest[0]

    @property
    def path_count(self) -> Ints:
        """Number of shortest paths between any two routers; 1 from a router to itself."""
        return self._shortest[1]

    @cached_property
    def diameter(self) -> int:
        """D, between routers with hosts; ValueError if some cannot reach others."""
        among = self.distance[np.ix_(self.endpoints, self.endpoints)]
        if among.max() == UNREACHED:
            raise ValueError("the routers are not connected")
        return int(among.max())

    @cached_property
    def mean_distance(self) -> float:
        """d: the mean over ordered pairs of different routers with hosts."""
        among = self.distance[np.ix_(self.endpoints, self.endpoints)]
        return float(among.sum(dtype=np.int64)) / (len(among) * (len(among) - 1))


def shortest_paths(start: Ints, peer: Ints, distance: NDArray[np.int8], count: Ints) -> None:
    """Compute distances and numbers of shortest paths between all routers, breadth first.

    Where fewer routers are left than were reached last, those that are left look for them.

    distance, count: filled, shape (routers, routers); distance holds UNREACHED everywhere, count 0.
    """
    routers = len(start) - 1
    queue = np.empty(routers + 1, np.int64)
    for src in range(routers):
        far, ways = distance[src], count[src]
        far[src], ways[src], queue[0] = 0, 1, src
        begin, end, hops = 0, 1, 1
        while begin < end < routers:
            tail = end
            if routers - end < end - begin:
                for v in range(routers):
                    if far[v] == UNREACHED:
                        many = 0
                        for arc in range(start[v], start[v + 1]):
                            many += ways[peer[arc]] * (far[peer[arc]] == hops - 1)
                        if many:
                            far[v], ways[v], queue[tail] = hops, many, v
                            tail += 1
            else:
                for u in queue[begin:end]:
                    many = ways[u]  # a store to the arrays would have the compiler read this again
                    for arc in range(start[u], start[u + 1]):
                        v = peer[arc]  # without branches, which nothing foretells
                        queue[tail] = v
                        tail += far[v] == UNREACHED
                        far[v] = min(far[v], hops)
                        ways[v] += many * (far[v] == hops)
            begin, end, hops = end, tail, hops + 1
