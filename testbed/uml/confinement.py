"""Rules of what a kernel of User-Mode Linux may reach of the host; uml_confine.c enforces them.

It reads named folders: programs and libraries of the system, what every user may read of /etc, the
project, Python with its packages, and the folder of the command.  It writes to the channels, and to
the folder of the command if that may.

The channels are the only files that it can write to besides.

The host makes and opens them before it boots the kernel.  The first process inside opens them and
removes their names, so no other can open them by a path.  Their content is a stranger's: it is
bounded, and read by descriptors that the host has had from the start.  Output goes to files
because the time at which a pipe or a terminal takes more would depend on the host.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from weft.testbed.uml import virtual_kernel

FOLDER = "channels"
NAMES = ("status", "out", "err", "questions", "report")
FILE_BYTES = 1 << 28  # of each file that the kernel writes to
REPORT_BYTES = 1 << 26
QUESTION_BYTES = 4096
STATUS_BYTES = 100
BOOTED = "booted"  # first line of the channel `status`; the second is the command's status
PROJECT = Path(__file__).resolve().parents[2]
SETTINGS = Path("/etc")
EMPTY = (Path("/tmp"), Path("/run"), Path("/dev/shm"))  # inside, but for mounts
OF_OTHERS = stat.S_IROTH | stat.S_IXOTH


class Channels:
    """The host's ends; a context that closes them."""

    def __init__(self, common: Path) -> None:
        """Make the channels in the folder `common`."""
        folder = common / FOLDER
        folder.mkdir(mode=0o700)
        flags = os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
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


SYSTEM = tuple(map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt")))


def fresh() -> list[Path]:
    """Return the folders of the host that are empty inside, but for mounts: EMPTY and the home."""
    return [*EMPTY, *_home()]


def _home() -> list[Path]:
    """Return the user's home, unless it lies in a folder of EMPTY."""
    with suppress(RuntimeError):  # this user has none
        home = Path.home().resolve()
        if home != Path("/") and home.is_dir() and not _is_below(home, EMPTY):
            return [home]
    return []


def _is_below(folder: Path, others: Iterable[Path]) -> bool:
    return any(folder.is_relative_to(other) for other in others)


def of_python() -> list[Path]:
    """Return the folders of the project, of Python, and of its packages, outer ones only."""
    imported = [Path(name).resolve() for name in sys.path if name and Path(name).is_dir()]
    packages = [folder for folder in imported if not _is_below(Path.cwd(), [folder])]
    outer: list[Path] = []
    for folder in sorted({PROJECT, *map(Path, (sys.prefix, sys.base_prefix)), *packages}):
        if not _is_below(folder, outer):
            outer.append(folder)
    return outer


def mounts(folder: Path, writable: Path | None) -> str:
    """Return what of the host is mounted inside as an fstab(5), outer folders first.

    Args:
        folder: of the command.
        writable: folder that it may write to; None: it writes to none.
    """
    lines = dict.fromkeys(_home(), ("tmpfs", "mode=700"))
    for needed in [*of_python(), folder]:
        if _is_below(needed, fresh()):
            lines[needed] = ("hostfs", f"ro,X-mount.mkdir,{_escaped(needed)}")
    if writable:
        lines[writable] = ("hostfs", f"rw,X-mount.mkdir,{_escaped(writable)}")
    return "".join(
        f"none {_escaped(place)} {kind} {options} 0 0\n"
        for place, (kind, options) in sorted(lines.items())
    )


def _escaped(folder: Path) -> str:
    return str(folder).replace("\\", "\\134").replace(" ", "\\040")


def rules(common: Path, folder: Path, writable: Path | None) -> str:
    """Return the rules for uml_confine.c: lines of a right and a path.

    Args:
        common: folder that the kernel reads from, with the channels.
        folder, writable: see mounts().
    """
    readable = [*SYSTEM, *virtual_kernel.folders(), *of_python(), common, *_content(folder)]
    if writable:  # the command is the user's own, and so is where its programs lie
        readable += _programs()
    lines = [
        *(f"read {place}" for place in readable),
        f"list {SETTINGS}",
        *(f"read {place}" for place in _public(SETTINGS)[1]),
        *(f"append {common / FOLDER / name}" for name in NAMES),
        f"remove {common / FOLDER}",
        "write /dev/null",
        *([f"write {writable}"] if writable else []),
    ]
    return "".join(f"{line}\n" for line in lines if "\n" not in line)


def _content(folder: Path) -> list[Path]:
    """Return `folder`; only the visible files in it if it contains the user's home."""
    if not any(home.is_relative_to(folder) for home in [*_home(), *EMPTY]):
        return [folder]
    return [
        Path(entry.path)
        for entry in os.scandir(folder)
        if entry.is_file() and not entry.name.startswith(".")
    ]


def _programs() -> list[Path]:
    """Return the folders of PATH that this user may enter, and the libraries beside them."""
    folders = [Path(name) for name in os.environ.get("PATH", "").split(":") if name]
    places = chain.from_iterable((folder, folder.with_name("lib")) for folder in folders)
    usable = (place for place in places if place.is_absolute() and os.access(place, os.X_OK))
    return [place.resolve() for place in usable if len(place.parts) > 1]


def _public(folder: Path) -> tuple[bool, list[Path]]:
    """Return whether every user may read all of `folder`, and the parts that every user may."""
    is_whole, parts = True, []
    for entry in os.scandir(folder):
        mode = entry.stat(follow_symlinks=False).st_mode
        place = Path(entry.path)
        if stat.S_ISDIR(mode) and mode & OF_OTHERS == OF_OTHERS:
            inner_is_whole, inner = _public(place)
            parts += [place] if inner_is_whole else inner
            is_whole &= inner_is_whole
        elif stat.S_ISREG(mode) and mode & stat.S_IROTH:
            parts.append(place)
        else:
            is_whole &= stat.S_ISLNK(mode)  # the target has a rule of its own, or none
    return is_whole, parts
