"""Files that nobody but this process's user can open, and hence nobody else can read, write or
lock.

A lock of flock(2) is taken by whoever can open the file, if only for reading: a lock that root
waits for must lie where no other user comes.  Links are not followed, so that nothing is written
where somebody else has led us.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FILE_MODE, FOLDER_MODE = 0o600, 0o700
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def make_folder(path: Path) -> None:
    """Let the folder `path` be there, with mode 0700; OSError, naming it, if it is a link or
    another user's."""
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


def replace(path: Path, data: bytes, *, to_disk: bool = False) -> None:
    """Replace the content of `path` atomically; to_disk: return when it is on the disk."""
    draft = path.with_name(f"{path.name}.new")
    write(draft, data, to_disk=to_disk)
    draft.replace(path)


def trusted_folder(path: Path) -> Path:
    """Return the folder `path`, without links, if only root and this user can change what it leads
    to.

    It and the folders above belong to root or to this user, and no others may write there.  One
    above may be writable with the sticky bit, as /tmp is: in such a folder others can rename and
    remove nothing of ours.

    Raises:
        OSError: there is no such folder, or another user can change it; the line names what is to
        be mended.
    """
    folder = path.resolve(strict=True)
    _require_own(path, folder)
    for above in folder.parents:
        _require_own(path, above, sticky=True)
    return folder


def trusted_file(path: Path) -> Path:
    """Return the file `path`, without links, if only root and this user can change it or put
    another in its place.

    Raises:
        OSError: as of trusted_folder(), for the file or its folder.
    """
    file = path.resolve(strict=True)
    trusted_folder(file.parent)
    _require_own(path, file)
    return file


def _require_own(path: Path, place: Path, *, sticky: bool = False) -> None:
    """Raise OSError if users other than root and this one may write to `place`, to which `path`
    leads."""
    status = place.stat()
    if status.st_uid not in (0, os.geteuid()):
        raise OSError(
            f"{path} is not used: {place} belongs to user {status.st_uid}, not to root or "
            f"{os.geteuid()}"
        )
    if status.st_mode & WRITABLE_BY_OTHERS and not (sticky and status.st_mode & stat.S_ISVTX):
        raise OSError(f"{path} is not used: other users may write to {place}; chmod go-w {place}")


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    """A descriptor of `path`, which is ours."""
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        if error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and path.is_symlink()):
            raise OSError(
                f"{path} is a link, and what it leads to is not ours to use; remove it"
            ) from None
        raise
    try:
        owner = os.fstat(fd).st_uid
        if owner != os.geteuid():
            raise OSError(
                f"{path} belongs to user {owner}, not to {os.geteuid()} as it must; remove it"
            )
        yield fd
    finally:
        os.close(fd)
