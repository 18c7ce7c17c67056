"""Files made under sudo belong to the user who called it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def caller() -> tuple[int, int] | None:
    """User and group of whoever called sudo; None if nobody did."""
    user = os.environ.get("SUDO_UID")
    if os.geteuid() or not user:
        return None
    return int(user), int(os.environ.get("SUDO_GID", user))


@contextmanager
def given_back(*paths: Path) -> Iterator[None]:
    """What the block makes at `paths` and of the directories above them belongs to whoever called
    sudo.

    What was there before keeps its owner.
    """
    owner = caller()
    missing = [
        one
        for path in paths
        for one in (path, *path.absolute().parents)
        if not os.path.lexists(one)
    ]
    try:
        yield
    finally:
        for path in missing if owner else ():
            with suppress(FileNotFoundError):
                os.chown(path, *owner, follow_symlinks=False)  # type: ignore[misc]  # there is an owner
