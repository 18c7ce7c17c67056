"""Channels from a kernel of User-Mode Linux to the host: the only files that it can write to.

The host makes and opens them before it boots the kernel.  The first process inside opens them and
removes their names, so no other can open them by a path.  Their content is a stranger's: it is
bounded, and read by descriptors that the host has had from the start.  Output goes to files
because the time at which a pipe or a terminal takes more would depend on the host.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

FOLDER = "channels"
NAMES = ("status", "out", "err", "questions", "report")
FILE_BYTES = 1 << 28  # of each file that the kernel writes to
REPORT_BYTES = 1 << 26
QUESTION_BYTES = 4096
STATUS_BYTES = 100
BOOTED = "booted"  # first line of the channel `status`; the second is the command's status


class Channels:
    """The host's ends; a context that closes them."""

    def __init__(self, common: Path) -> None:
        """Make the channels in the folder `common`."""
        folder = common / FOLDER
        folder.mkdir(mode=0o700)
        flags = os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._files = {
            name: os.fdopen(os.open(folder / name, flags, 0o600), "rb", buffering=0)
            for name in NAMES
        }
        self._asked = b""

    def __enter__(self) -> Channels:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for file in self._files.values():
            file.close()

    def copy(self, sinks: Sequence[BinaryIO]) -> None:
        """Copy new output to the sinks of standard output and standard error."""
        for name, sink in zip(("out", "err"), sinks, strict=True):
            while chunk := self._files[name].read(1 << 16):
                sink.write(chunk)
                sink.flush()

    def questions(self) -> Iterator[bytes]:
        """Yield new questions.

        Raises:
            ChildProcessError: one is too long.
        """
        while chunk := self._files["questions"].read(QUESTION_BYTES):
            *lines, self._asked = (self._asked + chunk).split(b"\n")
            if max(map(len, [*lines, self._asked])) > QUESTION_BYTES:
                raise ChildProcessError(
                    f"the command asked the host a question of more than {QUESTION_BYTES} bytes"
                )
            yield from lines

    def status(self) -> tuple[bool, int | None]:
        """Return whether the kernel has booted, and the exit status of the command, if it has."""
        text = os.pread(self._files["status"].fileno(), STATUS_BYTES, 0).decode(errors="replace")
        booted, _, status = text.partition("\n")
        is_number = re.fullmatch(r"[0-9]{1,3}\n", status)
        return booted == BOOTED, int(status) if is_number else None

    def report(self) -> str:
        """Return the command's report, "" if there is none.

        Raises:
            ChildProcessError: it is too long, or no text.
        """
        content = os.pread(self._files["report"].fileno(), REPORT_BYTES + 1, 0)
        if len(content) > REPORT_BYTES:
            raise ChildProcessError(f"the command's report has more than {REPORT_BYTES} bytes")
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise ChildProcessError("the command's report is no text in UTF-8") from None
