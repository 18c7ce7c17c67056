"""Provenance of results: the code and the machine.

Code of other packages is a part of the version of what it measures.  Rows are stored by version, so
that a user who changes a scheme, a family of networks, a rule of switches or an experiment of a
package does not get the rows of the code before.
"""

from __future__ import annotations

import platform
import subprocess
import zlib
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from importlib.metadata import entry_points, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from weft import topologies
from weft.daemons.core import registry
from weft.testbed.linux import clock
from weft.topologies.core.grammar import module_in

FILE = Path(__file__).resolve()  # git follows no links
CODE = (":/", *(f":(top,exclude){name}" for name in ("*.md", "figures", "results")))


def code_and_machine(*, kernel: bool) -> dict[str, Any]:
    """Return commit, time, arithmetic and machine, JSON-able.

    Args:
        kernel: add which features the kernel has.
    """
    from weft.testbed.machine.doctor import probe  # whose imports take longest
    from weft.testbed.machine.machine import machine

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


STEP = 1000  # versions of experiments are below
SOURCES = (".py", ".c", ".h")


def code_version(experiment: str, values: Iterable[object], group: str) -> int:
    """Return a number of the packages' code that a cell runs, a multiple of STEP; 0 without any.

    Args:
        experiment: its name.
        values: of its parameters; a scheme or a network begins with its name.
        group: entry points of experiments.
    """
    names = {str(value).partition(":")[0] for value in values}
    modules = {module for name, module in modules_by_name().items() if name in names}
    modules |= {modules_of(group)[experiment]} if experiment in modules_of(group) else set()
    code = 0
    for module in sorted(modules):
        code = code_number(module, code)
    return STEP * code


@cache
def modules_by_name() -> Mapping[str, str]:
    """Return the modules of schemes and families of other packages, by their names."""
    return {**registry.of_packages(), **modules_of(topologies.ENTRY_POINTS)}


@cache
def modules_of(group: str) -> Mapping[str, str]:
    """Return the modules of a group of entry points by their names."""
    return {entry.name: module_in(entry.value) for entry in entry_points(group=group)}


@cache
def code_number(module: str, before: int) -> int:
    """Return a checksum of the sources of a module's package, after `before`."""
    top = find_spec(module.partition(".")[0])
    if not top or not top.origin:
        return before
    origin = Path(top.origin)
    inside = origin.parent.rglob("*") if top.submodule_search_locations else [origin]
    for path in sorted(path for path in inside if path.suffix in SOURCES):
        before = zlib.crc32(path.name.encode() + b"\0" + path.read_bytes(), before)
    return before
