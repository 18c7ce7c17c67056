"""A network as lists, for a Python without numpy, such as that of a web page."""

from __future__ import annotations

from weft.topologies.core.topology import Topology

SHARED = ("family", "parameters", "servers", "switches", "server_centric", "naming", "roles")


class PlainTopology(Topology):
    """A network of healthy links; its fields `links`, `level` and `failed`, arrays, are missing.

    rows: ends of each link.
    levels: level of each link.
    """

    rows: list[list[int]]
    levels: list[int]

    def __init__(self, topology: Topology) -> None:
        values = {name: getattr(topology, name) for name in SHARED}
        values["named"] = topology.spec
        values["rows"] = topology.links.tolist()
        values["levels"] = topology.level.tolist()
        values["_ports"] = [topology.ports(node) for node in range(topology.nodes)]
        self.__dict__.update(values)

    def ports(self, node: int) -> list[tuple[int, int, int, int]]:
        ports: list[tuple[int, int, int, int]] = self.__dict__["_ports"][node]
        return ports

    def ends(self, link: int) -> list[int]:
        return self.rows[link]

    def link_level(self, link: int) -> int:
        return self.levels[link]

    def live_ends(self) -> list[list[int]]:
        return self.rows

    def failed_links(self) -> list[int]:
        return []
