"""/etc/hosts of the nodes of a run, by which `ping h19` finds h19 in every node.

`ip netns exec NAME` binds what is in /etc/netns/NAME over /etc.  For every namespace of a run that
is a symbolic link to one folder of the run, so that a name costs a few microseconds, and all nodes
read one file.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

LINKS = Path("/etc/netns")  # where `ip netns exec` looks
FOLDER = "etc"  # in the run's directory
FILE_MODE, FOLDER_MODE = 0o644, 0o755  # whatever the umask: every node's processes read them
FIRST_LINES = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n"


def write(directory: Path, names: Iterable[tuple[str, Sequence[str]]]) -> None:
    """Let the nodes of the run in `directory` know these addresses by these names.

    The file is written in place, for a shell that runs has it bound.
    """
    folder = directory / FOLDER
    folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    lines = [f"{address}\t{' '.join(known)}\n" for address, known in names]
    (folder / "hosts").write_text(FIRST_LINES + "".join(lines))
    (folder / "hosts").chmod(FILE_MODE)


def link(directory: Path, namespaces: Iterable[str]) -> None:
    """Let each of `namespaces` read the file of the run in `directory`; where /etc cannot be
    written, none does."""
    try:
        LINKS.mkdir(mode=FOLDER_MODE, exist_ok=True)
        first: Path | None = None
        for name in namespaces:
            if first is None or not _linked(first, LINKS / name):
                (LINKS / name).symlink_to(directory / FOLDER)
                first = LINKS / name
    except OSError as error:
        if error.errno != errno.EROFS:
            raise


def _linked(first: Path, name: Path) -> bool:
    """Give the symbolic link `first` another name, which takes a fraction of what a new one does on
    a disk; False where the file system does not let it have so many.  FileExistsError for a name
    that is taken."""
    try:
        os.link(first, name, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:
        return False
    return True


def unlink(namespaces: Iterable[str]) -> None:
    """Undo link(), also where it was done in part.  What is no symbolic link is somebody else's,
    and stays."""
    for name in namespaces:
        path = LINKS / name
        if path.is_symlink():
            with suppress(FileNotFoundError):
                path.unlink()
