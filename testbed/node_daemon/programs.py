"""The maps of the eBPF programs at a network's ports, and the parts of each node."""

from __future__ import annotations

from collections.abc import Sequence

from weft.testbed.data_plane.plane_tables import PlaneTables, of_program
from weft.testbed.data_plane.transit_rewrite import TransitMaps
from weft.testbed.node_daemon.linux_capabilities import NodeMaps


class Programs:
    """The maps of the eBPF programs at a network's ports; they are closed with the process."""

    def __init__(self, data_plane: int | None, first_switch: int, transit: int | None) -> None:
        """Open the maps.

        Args:
            data_plane: id of the data plane's program; None: there is none.
            first_switch: the node that the data plane counts as 0.
            transit: id of the transit program; None: there is none.

        Raises:
            BpfError: no program has such an id.
        """
        self._first_switch = first_switch
        self._tables: PlaneTables | None = None
        self._transit_maps = TransitMaps(transit) if transit is not None else None
        if data_plane is not None:
            self._maps, self._tables = of_program(data_plane)

    def node_maps(self, nodes: Sequence[int]) -> dict[int, NodeMaps]:
        """Return the parts of each of `nodes`, with the forwarding groups as they are now."""
        transit, tables, first = self._transit_maps, self._tables, self._first_switch
        maps = {node: NodeMaps(transit=transit.at(node) if transit else None) for node in nodes}
        if tables:
            for switch, groups in tables.all(node - first for node in nodes).items():
                maps[first + switch] = maps[first + switch]._replace(
                    groups=groups,
                    queue_state=tables.queue_state(switch),
                    flows=tables.flows(switch),
                    long_queues=tables.long_queues(switch),
                )
        return maps

    def descriptors(self) -> list[int]:
        """Return the descriptors of the maps, which a forked process must keep open."""
        maps = (self._tables, self._transit_maps)
        return [fd for owner in maps if owner for fd in owner.descriptors()]
