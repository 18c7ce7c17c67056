"""Numbers that must not fall when a daemon restarts: incarnations and sequence numbers.

A row of words for each node, in a file of the run that every process maps, as in counters.py.  Each
number is one aligned word, written when it changes, so that it survives its daemon.  A message to
one daemon cannot be replayed to the next, and a wall clock that is set back makes no incarnation
smaller.

    incarnation, then for each port: last number sent, and the largest number received by neighbour
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from weft.testbed.linux import clock

FILE = "sequences"
WORD = 8


def words(neighbours: Iterable[int]) -> int:
    """Return the length of a node's row; `neighbours`: their number at each port."""
    return 1 + sum(1 + count for count in neighbours)


def create(directory: Path, nodes: int, words_each: int) -> None:
    """Create the file for `nodes` nodes."""
    with open(
        os.open(directory / FILE, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "r+b"
    ) as file:
        file.write(words_each.to_bytes(WORD, "little"))
        file.truncate((1 + nodes * words_each) * WORD)


class SequenceRow:
    """The words of one node.

    ports: the neighbours at each port.
    """

    def __init__(self, words: memoryview, ports: Mapping[int, Iterable[int]]) -> None:
        self._words = words
        self._indexes: dict[int, tuple[int, dict[int, int]]] = {}
        first = 1
        for port in sorted(ports):
            near = sorted(ports[port])
            received = {node: first + 1 + i for i, node in enumerate(near)}
            self._indexes[port] = first, received
            first += 1 + len(near)

    def next_incarnation(self) -> int:
        """Return the larger of the ns since 1970 and the last incarnation + 1; record it."""
        self._words[0] = incarnation = max(clock.wall_ns(), self._words[0] + 1)
        return incarnation

    def at(self, port: int) -> tuple[memoryview, int, dict[int, int]]:
        """Return the words and the indexes of `port`.

        These are the index of the last number sent, and of the largest received by neighbour.
        """
        return self._words, *self._indexes[port]


class SequenceFile:
    """The rows of a run's nodes."""

    def __init__(self, directory: Path) -> None:
        """Map the file of the run in `directory`."""
        fd = os.open(directory / FILE, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            self._words = memoryview(mmap.mmap(fd, 0)).cast("Q")
        finally:
            os.close(fd)
        self._row_words = int.from_bytes(self._words[:1].tobytes(), "little")

    def row(self, node: int, ports: Mapping[int, Iterable[int]]) -> SequenceRow:
        """Return the row of `node`; see SequenceRow."""
        first = 1 + node * self._row_words
        return SequenceRow(self._words[first : first + self._row_words], ports)
