"""The credentials of daemons: the run's keys, and the sequence numbers of each node."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from weft.testbed.linux.interface import NodeInterfaces
from weft.testbed.node_daemon import keys, sequence_file
from weft.testbed.node_daemon.sealed_channel import Bare, PortChannel, Sealed
from weft.testbed.node_daemon.sequence_file import SequenceFile, SequenceRow


class Credentials:
    """The credentials of one node.

    row: sequence numbers of the node.
    read_keys: reads the run's keys; see keys.py.
    """

    def __init__(
        self, interfaces: NodeInterfaces, row: SequenceRow, read_keys: Callable[[], Sequence[bytes]]
    ) -> None:
        self._interfaces = interfaces
        self.row = row
        self.read_keys = read_keys

    def channels(self, ports: Iterable[int]) -> list[PortChannel]:
        """Return the channels that seal and open the messages of these ports."""
        keys = self.read_keys()
        return [self._channel(port, keys) for port in ports]

    def _channel(self, port: int, keys: Sequence[bytes]) -> PortChannel:
        interface = self._interfaces.ports[port]
        if not keys:
            return Bare(list(interface.neighbours))
        node, elsewhere = self._interfaces.node, interface.elsewhere
        return Sealed(node, port, interface.link, keys, self.row, elsewhere)


class RunCredentials:
    """The credentials of all nodes of the run in `directory`.

    Raises ValueError or OSError if the run has none.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._sequences = SequenceFile(directory)
        keys.read(directory)

    def of(self, interfaces: NodeInterfaces) -> Credentials:
        """Return the credentials of the node with these interfaces."""
        row = self._sequences.row(interfaces.node, _near(interfaces))
        return Credentials(interfaces, row, partial(keys.read, self._directory))


def rehearsed(nodes: Sequence[NodeInterfaces]) -> list[Credentials]:
    """Return credentials that these nodes share with no others, in memory only."""
    key = os.urandom(keys.KEY_BYTES)
    credentials = []
    for interfaces in nodes:
        row = memoryview(bytearray(8 * _words(interfaces))).cast("Q")
        sequence_row = SequenceRow(row, _near(interfaces))
        credentials.append(Credentials(interfaces, sequence_row, lambda: (key,)))
    return credentials


def _near(interfaces: NodeInterfaces) -> dict[int, list[int]]:
    return {port: list(interface.neighbours) for port, interface in interfaces.ports.items()}


def _words(interfaces: NodeInterfaces) -> int:
    return sequence_file.words(len(interface.neighbours) for interface in interfaces.ports.values())
