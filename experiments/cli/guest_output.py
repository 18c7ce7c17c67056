"""Output of a kernel for virtual time: names of stages, messages, and the end of its boot.

A command of a lab may write whatever it likes.  So lines are bounded, and control characters are
escaped.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, BinaryIO

from weft.topologies.core.grammar import printable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

MOST_LINE_BYTES = 4096
STAGE = "weft-stage: "  # begins a line that names a stage


class FirstOutput(io.BytesIO):
    """Sink that passes output on to `stream`, and first calls `begin`."""

    def __init__(self, stream: BinaryIO, begin: Callable[[], None]) -> None:
        super().__init__()
        self.stream = stream
        self.begin = begin

    def write(self, chunk: ReadableBuffer) -> int:
        """Pass `chunk` on."""
        self.begin()
        written = self.stream.write(chunk)
        self.stream.flush()
        return written


@contextmanager
def boot_progress(work: str) -> Iterator[tuple[FirstOutput, FirstOutput]]:
    """Report that a kernel boots, until it writes; yield the sinks of its output.

    work: what is done, as console.stages() takes it.
    """
    from weft.experiments.runner.console import stages

    with ExitStack() as booting:
        booting.enter_context(stages("a kernel for virtual time boots", work))
        sinks = [
            FirstOutput(stream, booting.close) for stream in (sys.stdout.buffer, sys.stderr.buffer)
        ]
        yield sinks[0], sinks[1]


class GuestMessages(io.BytesIO):
    """Sink for output of a kernel: names of stages, and lines for the terminal.

    last: the last line for the terminal; "" before the first.
    """

    def __init__(self, progress: Callable[[str], None]) -> None:
        super().__init__()
        self.progress = progress
        self.rest = b""
        self.last = ""

    def write(self, chunk: ReadableBuffer) -> int:
        """Pass on the lines that `chunk` completes."""
        *lines, rest = (self.rest + bytes(chunk)).split(b"\n")
        self.rest = rest[:MOST_LINE_BYTES]
        for line in lines:
            text = printable(line[:MOST_LINE_BYTES].decode(errors="replace"))
            if text.startswith(STAGE):
                self.progress(text.removeprefix(STAGE))
            else:
                self.last = text
                print(text, file=sys.stderr, flush=True)
        return len(bytes(chunk))
