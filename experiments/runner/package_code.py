"""Code of other packages, as a part of the version of what it measures.

Rows are stored by version, so that a user who changes a scheme, a family of networks, a rule of
switches or an experiment of a package does not get the rows of the code before.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from weft import topologies
from weft.daemons.core import registry
from weft.topologies.core.grammar import module_in

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
