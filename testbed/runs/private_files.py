"""Owners of files: this process's user alone, or the user who called sudo.

Only this process's user can open a private file, and hence read, write or lock it.  Any process
that can open a file, if only for reading, can take its flock(2): a lock that root waits for must
lie out of reach of other users.  Links are not followed, because they could lead a write to another
file.
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
    """Create the folder `path` if it is missing, and give it mode 0700.

    Raises:
        OSError: it is a link, or belongs to another user.
    """
    with suppress(FileExistsError):
        path.mkdir(FOLDER_MODE)
    with _opened(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
        os.fchmod(fd, FOLDER_MODE)


def open_file(path: Path, flags: int) -> int:
    """Return a descriptor of the file `path`, and give the file mode 0600.

    Raises:
        OSError: it is a link, no regular file, or belongs to another user.
    """
    with _opened(path, flags) as fd:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"{path} is no regular file; remove it")
        os.fchmod(fd, FILE_MODE)
        return os.dup(fd)


def write(path: Path, data: bytes, *, to_disk: bool = False) -> None:
    """Write `data` to the file `path`; to_disk: return when it is on the disk."""
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


def require_writable(path: Path) -> None:
    """Raise ValueError for what cannot be written, before its content takes minutes or hours."""
    if not path.parent.is_dir():
        raise ValueError(f"{path}: there is no such folder")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"{path}: this file cannot be written")


def write_whole(path: Path, data: bytes) -> None:
    """Give the file `path` the content `data`, or leave it as it was.

    A file keeps its owner and mode; a new one belongs to the caller of sudo.  What no draft may
    replace is written in place: another user's file, what a link leads to, a device or a pipe.

    Raises:
        OSError: it cannot be written; the error names `path`.
    """
    try:
        with owned_by_caller(path):
            if _replaceable(path):
                _replace_by_draft(path, data)
            else:
                path.write_bytes(data)
    except OSError as error:
        if error.filename is None:  # the disk is full, which no other name would help
            raise OSError(f"{path}: {error.strerror}") from None
        raise OSError(error.errno, error.strerror, str(path)) from None


def _replaceable(path: Path) -> bool:
    """Return True for a file that this user may write and whose owner a new file can have."""
    if not os.access(path.parent, os.W_OK):
        return False
    if not os.path.lexists(path):
        return True
    before = path.lstat()
    is_own = os.geteuid() in (0, before.st_uid)
    return is_own and stat.S_ISREG(before.st_mode) and os.access(path, os.W_OK)


def _replace_by_draft(path: Path, data: bytes) -> None:
    """Write a draft beside `path` with the owner and mode of a file that is there; rename it."""
    draft = path.with_name(f".weft-{os.urandom(8).hex()}.tmp")
    with open(draft, "xb") as file:  # exclusively: what another user puts there is not followed
        try:
            if path.exists():
                before = path.stat()
                with suppress(PermissionError):  # a group that this user is not in
                    os.fchown(file.fileno(), before.st_uid, before.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
            file.write(data)
            file.flush()
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)


def trusted_folder(path: Path) -> Path:
    """Return the folder `path`, links resolved, if only root and this user can change its path.

    The folder and those above it belong to root or to this user, and no other user may write there.
    A folder above may be writable with the sticky bit, as /tmp is: there, other users cannot rename
    or remove our entries.

    Raises:
        OSError: no such folder, or another user can change it; the line says how to repair it.
    """
    folder = path.resolve(strict=True)
    _require_own(path, folder)
    for above in folder.parents:
        _require_own(path, above, sticky=True)
    return folder


def trusted_file(path: Path) -> Path:
    """Return the file `path`, links resolved, if only root and this user can change or replace it.

    Raises:
        OSError: see trusted_folder().
    """
    file = path.resolve(strict=True)
    trusted_folder(file.parent)
    _require_own(path, file)
    return file


def _require_own(path: Path, place: Path, *, sticky: bool = False) -> None:
    """Raise OSError if other users than root and this one may write to `place`, part of `path`."""
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
    """Yield a descriptor of `path`, which this user owns."""
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW, FILE_MODE)
    except OSError as error:
        if error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and path.is_symlink()):
            raise OSError(f"{path} is a link, and links are not followed here; remove it") from None
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


def caller() -> tuple[int, int] | None:
    """Return user id and group id of the caller of sudo; None without sudo."""
    user = os.environ.get("SUDO_UID")
    if os.geteuid() or not user:
        return None
    return int(user), int(os.environ.get("SUDO_GID", user))


@contextmanager
def owned_by_caller(*paths: Path) -> Iterator[None]:
    """Give `paths` and their parent folders to the caller of sudo, if the block creates them.

    Existing files keep their owner.
    """
    owner = caller()
    missing = [
        ancestor
        for path in paths
        for ancestor in (path, *path.absolute().parents)
        if not os.path.lexists(ancestor)
    ]
    try:
        yield
    finally:
        if owner:
            for path in missing:
                with suppress(FileNotFoundError):
                    os.chown(path, *owner, follow_symlinks=False)
