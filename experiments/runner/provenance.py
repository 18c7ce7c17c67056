"""Provenance of results: the code and the machine."""

from __future__ import annotations

import platform
import subprocess
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from weft.testbed.linux import clock
from weft.testbed.machine.doctor import probe
from weft.testbed.machine.machine import machine

FILE = Path(__file__).resolve()  # git follows no links
CODE = (":/", *(f":(top,exclude){name}" for name in ("*.md", "figures", "results")))


def code_and_machine(*, kernel: bool) -> dict[str, Any]:
    """Return commit, time, arithmetic and machine, JSON-able.

    Args:
        kernel: add which features the kernel has.
    """
    commit, dirty = code()
    features = (
        {"features": {feature.name: feature.present for feature in probe()}} if kernel else {}
    )
    return {
        "commit": commit,
        "dirty": dirty,
        "swept_at": clock.utc_time(clock.wall()),
        "arithmetic": arithmetic(),
        "machine": machine(),
        **features,
    }


@lru_cache
def arithmetic() -> dict[str, str]:
    """Return versions and instruction sets that decide the last bits of floats."""
    import numpy as np
    from llvmlite.binding import get_host_cpu_features  # type: ignore[import-untyped]

    instructions = np.show_config(mode="dicts")["SIMD Extensions"]
    compiled = sorted(name for name, present in get_host_cpu_features().items() if present)
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "numba")},
        "numpy_instructions": " ".join([*instructions["baseline"], *instructions["found"]]),
        "numba_instructions": " ".join(compiled),
    }


@lru_cache
def code() -> tuple[str | None, bool]:
    """Return the commit, None outside a work tree, and whether tracked code differs from it.

    Pages, figures and published results are no code.
    """
    try:
        # an installed copy may lie within a work tree of something else
        git("ls-files", "--error-unmatch", str(FILE))
        status = git("status", "--porcelain", "--untracked-files=no", "--", *CODE)
        return git("rev-parse", "--short=10", "HEAD"), bool(status)
    except (OSError, subprocess.SubprocessError):
        return None, False


def git(*argv: str) -> str:
    """Return git's output about the work tree of this file; other users may own the tree."""
    where = ["-C", str(FILE.parent), "-c", "safe.directory=*", "--no-optional-locks"]
    done = subprocess.run(
        ["git", *where, *argv], capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()
