"""/etc/hosts of the nodes of a run, by which `ping h19` resolves h19 in every node.

`ip netns exec NAME` binds the files of /etc/netns/NAME over those of /etc.  For every namespace of
a run, that is a symbolic link to one folder of the run, so that all nodes read one file.

The links lie on the disk, and the run's folder does not: the links of a network that was up when
the machine went down are left, and lead nowhere.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

LINKS = Path("/etc/netns")  # where `ip netns exec` looks
FOLDER = "etc"  # in the run's directory
FILE_MODE, FOLDER_MODE = 0o644, 0o755  # whatever the umask: processes of any user read them
FIRST_LINES = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n"


def write(directory: Path, names: Iterable[tuple[str, Sequence[str]]]) -> None:
    """Write the hosts file of the run in `directory`: an address and its names, line by line.

    The file is written in place, because running shells have it bound.
    """
    folder = directory / FOLDER
    folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    lines = [f"{address}\t{' '.join(aliases)}\n" for address, aliases in names]
    (folder / "hosts").write_text(FIRST_LINES + "".join(lines))
    (folder / "hosts").chmod(FILE_MODE)


def link(directory: Path, namespaces: Iterable[str]) -> None:
    """Link the hosts file of the run in `directory` into `namespaces`, unless /etc is read-only."""
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
    """Give the symbolic link `first` another name, faster on a disk than another symbolic link.

    Returns:
        False if the file system allows no more hard links.

    Raises:
        FileExistsError: the name exists.
    """
    try:
        os.link(first, name, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:
        return False
    return True


def unlink(namespaces: Iterable[str]) -> None:
    """Undo link(), also after a partial one.  Only symbolic links are removed."""
    for name in namespaces:
        path = LINKS / name
        if path.is_symlink():
            with suppress(FileNotFoundError):
                path.unlink()


def unlink_lost(directories: Path) -> list[str]:
    """Remove the links that lead to runs without a directory; return these runs.

    directories: the folder of the directories of all runs, which must not change meanwhile.
    """
    lost = set()
    for path in LINKS.iterdir() if LINKS.is_dir() else ():
        folder = path.readlink() if path.is_symlink() else path
        directory = folder.parent
        if directory.parent == directories and folder.name == FOLDER and not directory.exists():
            path.unlink()
            lost.add(directory.name)
    return sorted(lost)
