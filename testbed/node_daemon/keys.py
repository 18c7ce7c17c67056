"""A run's keys, in a file that root alone may read: made when the network comes up, replaced on
demand.

The first key of the file seals what daemons send; all of them open what they hear.  A key is
replaced in three steps, each told to every daemon before the next: the new one opens, too; it
seals; the old one opens no more.  So no message is refused meanwhile, and a daemon that starts
between two steps gets along with those before and after it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

FILE = "key"
KEY_BYTES = 32
MODE = 0o600


def create(directory: Path, *, authenticated: bool = True) -> None:
    """Make the key of the run in `directory`; not `authenticated`: its daemons shall believe
    whatever they hear."""
    _write(directory, [os.urandom(KEY_BYTES)] if authenticated else [])


def read(directory: Path) -> tuple[bytes, ...]:
    """The keys of the run in `directory`, first the one that seals; none if its messages are not
    authenticated.

    ValueError if it has no such file, or a broken one.
    """
    try:
        keys = tuple(bytes.fromhex(line) for line in (directory / FILE).read_text().split())
    except FileNotFoundError:
        raise ValueError(f"run {directory.name} has no file of keys, {directory / FILE}") from None
    except ValueError:
        keys = (b"",)
    if any(len(key) != KEY_BYTES for key in keys):
        raise ValueError(
            f"{directory / FILE}: a line of it is no key of {KEY_BYTES} bytes in hexadecimal"
        )
    return keys


def rotate(directory: Path, tell: Callable[[], None]) -> None:
    """Replace the key that seals by a new one; `tell` has every daemon read the file again.

    ValueError if the run's messages are not authenticated.  What `tell` raises leaves both keys
    valid: try again.
    """
    before = read(directory)
    if not before:
        raise ValueError(
            f"run {directory.name} does not authenticate what its daemons say, so it has no "
            f"key to replace"
        )
    old, new = before[0], os.urandom(KEY_BYTES)
    for keys in ([old, new], [new, old], [new]):
        _write(directory, keys)
        tell()


def _write(directory: Path, keys: Sequence[bytes]) -> None:
    """Atomically: who reads meanwhile reads all of the old file or of the new one."""
    draft = directory / f"{FILE}.new"
    draft.unlink(missing_ok=True)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, MODE)
    with open(fd, "w") as file:
        file.writelines(f"{key.hex()}\n" for key in keys)
    draft.replace(directory / FILE)
