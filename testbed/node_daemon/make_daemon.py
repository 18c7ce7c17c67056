"""A node's daemon made from its configuration: the one way, for the supervisor, by hand and in
tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from weft.daemons.core import registry
from weft.daemons.core.node_config import NodeConfig
from weft.testbed.data_plane.groups import Groups
from weft.testbed.data_plane.plane_tables import PlaneTables, of_program
from weft.testbed.data_plane.transit_rewrite import TransitMaps
from weft.testbed.linux.node_interfaces import NodeInterfaces
from weft.testbed.node_daemon.credentials import Credentials
from weft.testbed.node_daemon.daemon import Daemon


class Programs:
    """The maps of the programs that run at a network's ports, which its daemons write; closed with
    the process.

    data_plane, transit: the ids of the data plane's and of the transit program, None where there is
        none.
    first_switch: the node that the data plane counts as 0.
    """

    def __init__(self, data_plane: int | None, first_switch: int, transit: int | None) -> None:
        """Raises BpfError if there is no program with such an id."""
        self._first_switch = first_switch
        self._tables: PlaneTables | None = None
        self._transit_maps = TransitMaps(transit) if transit is not None else None
        if data_plane is not None:
            self._maps, self._tables = of_program(data_plane)

    def groups(self, nodes: Sequence[int]) -> dict[int, Groups]:
        """The part of each of `nodes` in the data plane's maps, as it is now; none if there is no
        data plane."""
        if self._tables is None:
            return {}
        first = self._first_switch
        return {
            first + switch: groups
            for switch, groups in self._tables.all(node - first for node in nodes).items()
        }

    def descriptors(self) -> list[int]:
        """Of the maps: what a process that is forked must keep open to write them."""
        return [
            fd for held in (self._tables, self._transit_maps) if held for fd in held.descriptors()
        ]

    def make_daemon(
        self,
        directory: Path,
        interfaces: NodeInterfaces,
        config: NodeConfig,
        cells: memoryview,
        credentials: Credentials,
        groups: Groups | None = None,
    ) -> Daemon:
        """The daemon of the node at `interfaces`, in the run's `directory`.

        cells: its row of the counters.  credentials: the node's.  groups: its part of groups().
        ValueError if the node has a daemon already, or lacks what its scheme needs.
        """
        protocol = registry.machine(config, credentials.next_incarnation())
        switch = interfaces.node - self._first_switch
        queue_state = self._tables.queue_state(switch) if self._tables else None
        flows = self._tables.flows(switch) if self._tables else None
        transit = self._transit_maps.at(interfaces.node) if self._transit_maps else None
        return Daemon(
            directory, interfaces, protocol, config, cells, credentials,
            groups=groups, queue_state=queue_state, flows=flows, transit=transit,
        )  # fmt: skip


NO_PROGRAMS = Programs(None, 0, None)
