"""The credentials of daemons: the run's keys, and the sequence numbers of each node.

The keys are in a file that only root may read.  The first key seals the messages that daemons send;
all keys open messages that they receive.  A key is replaced in three steps, each announced to every
daemon before the next: the new key opens, too; it seals; the old key opens no more.  No message is
refused meanwhile, and a daemon that starts between two steps works with those before and after it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from weft.testbed.linux.interface import NodeInterfaces
from weft.testbed.node_daemon import sealed_channel
from weft.testbed.node_daemon.sealed_channel import (
    Bare,
    PortChannel,
    Sealed,
    SequenceFile,
    SequenceRow,
)
from weft.testbed.runs import private_files

KEY_FILE = "key"
KEY_BYTES = 32


def create_keys(directory: Path, *, authenticated: bool = True, key: bytes | None = None) -> None:
    """Create the key of the run in `directory`, `key` or a new one.

    The file is empty without `authenticated`.
    """
    _write_keys(directory, [key or os.urandom(KEY_BYTES)] if authenticated else [])


def read_keys(directory: Path) -> tuple[bytes, ...]:
    """Return the keys of the run in `directory`, the sealing key first.

    Returns:
        Empty if messages are not authenticated.

    Raises:
        ValueError: there is no such file, or it is malformed.
    """
    try:
        keys = tuple(bytes.fromhex(line) for line in (directory / KEY_FILE).read_text().split())
    except FileNotFoundError:
        raise ValueError(
            f"run {directory.name} has no file of keys, {directory / KEY_FILE}"
        ) from None
    except ValueError:
        keys = (b"",)
    if any(len(key) != KEY_BYTES for key in keys):
        raise ValueError(
            f"{directory / KEY_FILE}: a line of it is no key of {KEY_BYTES} bytes in hexadecimal"
        )
    return keys


def rotate_keys(directory: Path, announce: Callable[[], None]) -> None:
    """Replace the sealing key by a new one.

    Args:
        directory: of the run.
        announce: has every daemon read the file again.  If it raises, both keys stay valid: call
            rotate() again.

    Raises:
        ValueError: the run's messages are not authenticated.
    """
    before = read_keys(directory)
    if not before:
        raise ValueError(
            f"run {directory.name} does not authenticate what its daemons say, so it has no "
            f"key to replace"
        )
    old, new = before[0], os.urandom(KEY_BYTES)
    for keys in ([old, new], [new, old], [new]):
        _write_keys(directory, keys)
        announce()


def _write_keys(directory: Path, keys: Sequence[bytes]) -> None:
    private_files.replace(directory / KEY_FILE, "".join(f"{key.hex()}\n" for key in keys).encode())


class Credentials:
    """The credentials of one node.

    row: sequence numbers of the node.
    read_keys: reads the run's keys.
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
        read_keys(directory)

    def of(self, interfaces: NodeInterfaces) -> Credentials:
        """Return the credentials of the node with these interfaces."""
        row = self._sequences.row(interfaces.node, _near(interfaces))
        return Credentials(interfaces, row, partial(read_keys, self._directory))


def rehearsed(nodes: Sequence[NodeInterfaces]) -> list[Credentials]:
    """Return credentials that these nodes share with no others, in memory only."""
    key = os.urandom(KEY_BYTES)
    credentials = []
    for interfaces in nodes:
        lengths = (len(interface.neighbours) for interface in interfaces.ports.values())
        row = memoryview(bytearray(8 * sealed_channel.row_words(lengths))).cast("Q")
        sequence_row = SequenceRow(row, _near(interfaces))
        credentials.append(Credentials(interfaces, sequence_row, lambda: (key,)))
    return credentials


def _near(interfaces: NodeInterfaces) -> dict[int, list[int]]:
    return {port: list(interface.neighbours) for port, interface in interfaces.ports.items()}
