"""A run's keys, in a file that only root may read.

The first key seals the messages that daemons send; all keys open messages that they receive.  A key
is replaced in three steps, each announced to every daemon before the next: the new key opens, too;
it seals; the old key opens no more.  No message is refused meanwhile, and a daemon that starts
between two steps works with those before and after it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from weft.testbed.runs import private_files

FILE = "key"
KEY_BYTES = 32


def create(directory: Path, *, authenticated: bool = True, key: bytes | None = None) -> None:
    """Create the key of the run in `directory`, `key` or a new one.

    The file is empty without `authenticated`.
    """
    _write(directory, [key or os.urandom(KEY_BYTES)] if authenticated else [])


def read(directory: Path) -> tuple[bytes, ...]:
    """Return the keys of the run in `directory`, the sealing key first.

    Returns:
        Empty if messages are not authenticated.

    Raises:
        ValueError: there is no such file, or it is malformed.
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


def rotate(directory: Path, announce: Callable[[], None]) -> None:
    """Replace the sealing key by a new one.

    Args:
        directory: of the run.
        announce: has every daemon read the file again.  If it raises, both keys stay valid: call
            rotate() again.

    Raises:
        ValueError: the run's messages are not authenticated.
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
        announce()


def _write(directory: Path, keys: Sequence[bytes]) -> None:
    private_files.replace(directory / FILE, "".join(f"{key.hex()}\n" for key in keys).encode())
