"""Files that nobody but this process's user can open, and hence nobody else can read, write or lock.

A lock of flock(2) is taken by whoever can open the file, if only for reading: a lock that root waits for must lie where
no other user comes.  Links are not followed, so that nothing is written where somebody else has led us.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FILE_MODE, FOLDER_MODE = 0o600, 0o700


def make_folder(path: Path) -> None:
    """Let the folder `path` be there, with mode 0700; OSError, naming it, if it is a link or another user's."""
    with suppress(FileExistsError):
        path.mkdir(FOLDER_MODE)
    with _opened(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
        os.fchmod(fd, FOLDER_MODE)


def open_file(path: Path, flags: int) -> int:
    """A descriptor of the file `path`, which has mode 0600 from now on.

    OSError, naming it, if it is a link, no regular file, or another user's.
    """
    with _opened(path, flags) as fd:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"{path} is no regular file; remove it")
        os.fchmod(fd, FILE_MODE)
        return os.dup(fd)


def write(path: Path, data: bytes, *, to_disk: bool = False) -> None:
    """Let the file `path` hold `data`; to_disk: return when the disk has it."""
    fd = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        if to_disk:
            os.fsync(fd)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    """A descriptor of `path`, which is ours."""
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        if error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and path.is_symlink()):
            raise OSError(f"{path} is a link, and what it leads to is not ours to use; remove it") from None
        raise
    try:
        owner = os.fstat(fd).st_uid
        if owner != os.geteuid():
            raise OSError(f"{path} belongs to user {owner}, not to {os.geteuid()} as it must; remove it")
        yield fd
    finally:
        os.close(fd)
