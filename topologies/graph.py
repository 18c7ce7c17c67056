"""A network as integer arrays.

Nodes are numbered: servers 0 .. servers-1 (hosts of a switch fabric are servers too), then switches.  A port is numbered
within its node from 0.  A link joins two ports and runs both ways.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from topologies.address import Naming
from topologies.spec import unparse


@dataclass(frozen=True, eq=False, kw_only=True)
class Topology:
    """What is wired to what.

    links: shape (number of links, 4), int64: node a, its port, node b, its port; a < b.
    level: shape (number of links,), int8: level of the link; 0 joins a server to a switch.  In a server-centric network
        a level-l link joins two level-(l-1) copies; in a switch fabric a level-l link joins tiers l and l+1.
    server_centric: servers forward and switches are dumb crossbars; otherwise switches route and servers are hosts.
    naming: node number <-> name, label and address.
    failed: shape (number of links,), bool: links that are there but dead (see failures.py).
    """

    family: str
    parameters: Mapping[str, int]
    servers: int
    switches: int
    links: NDArray[np.int64]
    level: NDArray[np.int8]
    server_centric: bool
    naming: Naming
    failed: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))

    def __post_init__(self) -> None:
        if self.failed.size == 0:
            object.__setattr__(self, "failed", np.zeros(len(self.links), dtype=bool))

    @property
    def spec(self) -> str:
        """The text that builds this network again, failures aside."""
        return unparse(self.family, self.parameters)

    @property
    def nodes(self) -> int:
        return self.servers + self.switches

    @cached_property
    def _adjacency(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Link ends sorted by (node, port), and where each node's begin: rows are node, port, peer, peer port, link."""
        index = np.arange(len(self.links))[:, None]
        ends = np.concatenate([np.hstack([self.links, index]), np.hstack([self.links[:, [2, 3, 0, 1]], index])])
        ends = ends[np.lexsort((ends[:, 1], ends[:, 0]))]
        return ends, np.searchsorted(ends[:, 0], np.arange(self.nodes + 1))

    def ports(self, node: int) -> list[tuple[int, int, int, int]]:
        """(port, peer, peer's port, link) of every port of `node`, failed ones included, in order of port."""
        ends, start = self._adjacency
        return [(int(p), int(q), int(r), int(link)) for _, p, q, r, link in ends[start[node] : start[node + 1]]]

    def neighbours(self, node: int) -> dict[int, tuple[int, ...]]:
        """For each port, the routing nodes one hop away through it: behind a crossbar all the others, else the peer."""
        return {
            port: tuple(other for _, other, _, _ in self.ports(peer) if other != node) if self.is_crossbar(peer) else (peer,)
            for port, peer, _, _ in self.ports(node)
        }

    def is_crossbar(self, node: int) -> bool:
        """Whether `node` is a switch without any knowledge of the network."""
        return self.server_centric and node >= self.servers

    def link_between(self, a: int, b: int) -> int:
        """The link that joins nodes `a` and `b`; ValueError if there is none."""
        for _, peer, _, link in self.ports(a):
            if peer == b:
                return link
        raise ValueError(f"no link joins {self.naming.name(a)} and {self.naming.name(b)}")

    def link_name(self, link: int) -> str:
        """`link` as a person writes it, h0-w0."""
        a, _, b, _ = self.links[link]
        return f"{self.naming.name(int(a))}-{self.naming.name(int(b))}"

    def link(self, text: str) -> int:
        """The link that `text`, h0-w0, names; ValueError says what is wrong."""
        a, dash, b = text.partition("-")
        if not dash:
            raise ValueError(f"{text!r} is not a link; write its two ends as in {self.link_name(0)}")
        return self.link_between(self.naming.node(a), self.naming.node(b))

    def check(self) -> None:
        """Raise ValueError unless every link has two ends, no port is used twice and no server has no link."""
        a, pa, b, pb = self.links.T
        if len(self.links) != len(self.level) or len(self.links) != len(self.failed):
            raise ValueError(f"{self.spec}: links, level and failed differ in length")
        if ((self.links < 0).any()) or (a >= b).any() or (b >= self.nodes).any():
            raise ValueError(f"{self.spec}: a link's ends must be two nodes of the network, the smaller first")
        ports = np.concatenate([np.stack([a, pa], 1), np.stack([b, pb], 1)])
        if len(np.unique(ports, axis=0)) != len(ports):
            raise ValueError(f"{self.spec}: a port is used twice")
        if len(np.unique(ports[ports[:, 0] < self.servers, 0])) != self.servers:
            raise ValueError(f"{self.spec}: a server has no link")
