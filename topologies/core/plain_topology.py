"""A network as lists, for a Python without numpy, such as that of a web page."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy

from weft.topologies.core.topology import Topology

SHARED = ("family", "parameters", "servers", "switches", "server_centric", "naming", "roles")


class PlainTopology(Topology):
    """A network whose fields `links`, `level` and `failed`, arrays, are missing.

    rows: ends of each link.
    levels: level of each link.
    dead: failed links; none at first.
    """

    rows: list[list[int]]
    levels: list[int]
    dead: frozenset[int]

    def __init__(self, topology: Topology) -> None:
        values = {name: getattr(topology, name) for name in SHARED}
        values["named"] = topology.spec
        values["rows"] = topology.links.tolist()
        values["levels"] = topology.level.tolist()
        values["dead"] = frozenset()
        values["_ports"] = [topology.ports(node) for node in range(topology.nodes)]
        self.__dict__.update(values)

    def ports(self, node: int) -> list[tuple[int, int, int, int]]:
        ports: list[tuple[int, int, int, int]] = self.__dict__["_ports"][node]
        return ports

    def live_ports(self, node: int) -> list[tuple[int, int, int, int]]:
        return [row for row in self.ports(node) if row[3] not in self.dead]

    def ends(self, link: int) -> list[int]:
        return self.rows[link]

    def link_level(self, link: int) -> int:
        return self.levels[link]

    def with_failed(self, links: Iterable[int]) -> PlainTopology:
        """Return this network with `links` failed, and no others."""
        network = copy(self)
        network.__dict__.pop("adjacency", None)
        network.__dict__["dead"] = frozenset(links)
        return network

    def live_ends(self) -> list[list[int]]:
        return [row for link, row in enumerate(self.rows) if link not in self.dead]

    def failed_links(self) -> list[int]:
        return sorted(self.dead)
