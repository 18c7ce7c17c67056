"""What a node's daemon has of its run, so that others believe it: the keys, and the node's
numbers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from weft.testbed.linux.node_interfaces import NodeInterfaces
from weft.testbed.node_daemon import keys, sequence_file
from weft.testbed.node_daemon.sealed_channel import Bare, PortChannel, Sealed
from weft.testbed.node_daemon.sequence_file import SequenceFile, SequenceRow


class Credentials:
    """Those of one node.

    read_keys: the run's keys, as they are when it is called; see keys.py.
    """

    def __init__(
        self, interfaces: NodeInterfaces, row: SequenceRow, read_keys: Callable[[], Sequence[bytes]]
    ) -> None:
        self._interfaces, self._row = interfaces, row
        self.read_keys = read_keys

    def next_incarnation(self) -> int:
        """Larger than that of any daemon that ran on this node before."""
        return self._row.next_incarnation()

    def channels(self, ports: Iterable[int]) -> list[PortChannel]:
        """By which these of the node's ports speak and hear."""
        held = self.read_keys()
        return [self._channel(port, held) for port in ports]

    def _channel(self, port: int, held: Sequence[bytes]) -> PortChannel:
        interface = self._interfaces.ports[port]
        if not held:
            return Bare(list(interface.neighbours))
        return Sealed(self._interfaces.node, port, interface.link, held, self._row)


class RunCredentials:
    """Those of all nodes of the run in `directory`; ValueError or OSError if it has none."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._sequences = SequenceFile(directory)
        keys.read(directory)

    def of(self, interfaces: NodeInterfaces) -> Credentials:
        """Those of the node with these interfaces."""
        row = self._sequences.row(interfaces.node, _near(interfaces))
        return Credentials(interfaces, row, partial(keys.read, self._directory))


def rehearsed(nodes: Sequence[NodeInterfaces]) -> list[Credentials]:
    """Credentials that nodes have with nobody but each other, and that leave no trace."""
    key = os.urandom(keys.KEY_BYTES)
    rows = [memoryview(bytearray(8 * _words(each))).cast("Q") for each in nodes]
    return [
        Credentials(each, SequenceRow(row, _near(each)), lambda: (key,))
        for each, row in zip(nodes, rows, strict=True)
    ]


def _near(interfaces: NodeInterfaces) -> dict[int, list[int]]:
    return {port: list(interface.neighbours) for port, interface in interfaces.ports.items()}


def _words(interfaces: NodeInterfaces) -> int:
    return sequence_file.words(len(interface.neighbours) for interface in interfaces.ports.values())
