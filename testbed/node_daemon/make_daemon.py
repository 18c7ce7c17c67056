"""Make a node's daemon from its configuration."""

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

    def groups(self, nodes: Sequence[int]) -> dict[int, Groups]:
        """Return the forwarding groups of each of `nodes`, read now; empty without a data plane."""
        if self._tables is None:
            return {}
        first = self._first_switch
        return {
            first + switch: groups
            for switch, groups in self._tables.all(node - first for node in nodes).items()
        }

    def descriptors(self) -> list[int]:
        """Return the descriptors of the maps, which a forked process must keep open."""
        maps = (self._tables, self._transit_maps)
        return [fd for owner in maps if owner for fd in owner.descriptors()]

    def make_daemon(
        self,
        directory: Path,
        interfaces: NodeInterfaces,
        config: NodeConfig,
        cells: memoryview,
        credentials: Credentials,
        groups: Groups | None = None,
    ) -> Daemon:
        """Return the daemon of the node with these interfaces, in the run's `directory`.

        Args:
            directory: of the run.
            interfaces: of the node.
            config: of the node.
            cells: the node's row of the counters.
            credentials: of the node.
            groups: the node's part of groups().

        Raises:
            ValueError: the node has a daemon already, or lacks what its scheme needs.
        """
        protocol = registry.machine(config, credentials.next_incarnation())
        switch = interfaces.node - self._first_switch
        maps = NodeMaps(
            groups,
            self._tables.queue_state(switch) if self._tables else None,
            self._tables.flows(switch) if self._tables else None,
            self._transit_maps.at(interfaces.node) if self._transit_maps else None,
        )
        return Daemon(directory, interfaces, protocol, config, cells, credentials, maps)


NO_PROGRAMS = Programs(None, 0, None)
