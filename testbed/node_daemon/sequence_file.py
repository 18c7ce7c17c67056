"""Numbers that must not fall when a daemon starts again: its incarnation, and those sent and heard
at each port.

A row of words for each node, in a file of the run that every process maps, as counters.py has it.
Each number is one aligned word, written where it changes, so it outlives its daemon however that
ends.  A message to one daemon cannot be replayed to the next, and a wall clock that goes back makes
no incarnation smaller.

    incarnation, then for each port: the number sent last, and by neighbour the largest number heard
    of it
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
    """How many words the row of a node has; `neighbours`: how many there are at each of its
    ports."""
    return 1 + sum(1 + count for count in neighbours)


def create(directory: Path, nodes: int, words_each: int) -> None:
    """Make the file, for nodes 0 up to `nodes`."""
    with open(
        os.open(directory / FILE, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "r+b"
    ) as file:
        file.write(words_each.to_bytes(WORD, "little"))
        file.truncate((1 + nodes * words_each) * WORD)


class SequenceRow:
    """The words of one node.

    ports: each of its ports, and who is one hop away there.
    """

    def __init__(self, words: memoryview, ports: Mapping[int, Iterable[int]]) -> None:
        self._words = words
        self._at: dict[int, tuple[int, dict[int, int]]] = {}
        at = 1
        for port in sorted(ports):
            near = sorted(ports[port])
            self._at[port] = at, {node: at + 1 + i for i, node in enumerate(near)}
            at += 1 + len(near)

    def next_incarnation(self) -> int:
        """Return the nanoseconds since 1970, or one more than the last incarnation if that is
        larger."""
        self._words[0] = incarnation = max(clock.wall_ns(), self._words[0] + 1)
        return incarnation

    def at(self, port: int) -> tuple[memoryview, int, dict[int, int]]:
        """Return the words, the index of the number sent last at `port`, and by neighbour that of
        the largest heard."""
        return self._words, *self._at[port]


class SequenceFile:
    """The rows of a run's nodes."""

    def __init__(self, directory: Path) -> None:
        """Map the file of the run in `directory`; FileNotFoundError if it is not there."""
        fd = os.open(directory / FILE, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            self._words = memoryview(mmap.mmap(fd, 0)).cast("Q")
        finally:
            os.close(fd)
        self._each = int.from_bytes(self._words[:1].tobytes(), "little")

    def row(self, node: int, ports: Mapping[int, Iterable[int]]) -> SequenceRow:
        """That of `node`; arguments as of Row."""
        first = 1 + node * self._each
        return SequenceRow(self._words[first : first + self._each], ports)
