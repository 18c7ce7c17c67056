"""What a result was measured with: the code, and the machine."""

from __future__ import annotations

import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Any

from weft.testbed.linux import clock
from weft.testbed.machine.doctor import probe
from weft.testbed.machine.machine import machine

FILE = Path(__file__).resolve()  # git follows no links


def code_and_machine(*, kernel: bool) -> dict[str, Any]:
    """Commit, time and machine, JSON-able; with `kernel`, for runs on it, which of its features
    there are too.
    """
    commit, dirty = code()
    features = (
        {"features": {feature.name: feature.present for feature in probe()}} if kernel else {}
    )
    return {
        "commit": commit,
        "dirty": dirty,
        "swept_at": clock.utc_time(clock.wall()),
        "machine": machine(),
        **features,
    }


@lru_cache
def code() -> tuple[str | None, bool]:
    """The commit that this code is of, None outside a work tree, and whether a tracked file differs
    from it.
    """
    try:
        # an installed copy may lie within a work tree of something else
        git("ls-files", "--error-unmatch", str(FILE))
        return git("rev-parse", "--short=10", "HEAD"), bool(
            git("status", "--porcelain", "--untracked-files=no")
        )
    except (OSError, subprocess.SubprocessError):
        return None, False


def git(*argv: str) -> str:
    """Return git's output about the work tree of this file, whichever user owns it.

    It is not written to.
    """
    where = ["-C", str(FILE.parent), "-c", "safe.directory=*", "--no-optional-locks"]
    done = subprocess.run(
        ["git", *where, *argv], capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()
