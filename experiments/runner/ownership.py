"""Files created under sudo belong to the user who called sudo."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


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
