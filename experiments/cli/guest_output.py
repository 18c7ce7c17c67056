"""Output of a kernel on which a lab is checked: names of stages, and messages.

A command of the lab may write whatever it likes.  So lines are bounded, and control characters are
escaped.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.topologies.core.grammar import printable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

MOST_LINE_BYTES = 4096
STAGE = "weft-stage: "  # begins a line that names a stage


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
