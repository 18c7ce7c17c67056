"""The kernel for virtual time: the same source gives the same bytes in any folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from weft.testbed.uml import virtual_kernel

GOAL = "arch/um/kernel/"  # with the clock, assembly and constants of the configuration
missing = [tool for tool in virtual_kernel.TOOLS if shutil.which(tool) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(missing) or not virtual_kernel.SOURCE.exists(),
        reason=f"needs {virtual_kernel.SOURCE.name} and what builds it",
    ),
]


def objects(tree: Path) -> dict[str, bytes]:
    """Return the objects that are made in `tree`, with what a debugger reads."""
    for _ in virtual_kernel.make(tree, GOAL):
        pass
    paths = sorted((tree / GOAL).rglob("*.o"))
    return {str(path.relative_to(tree)): path.read_bytes() for path in paths}


def test_objects_do_not_depend_on_the_folder(tmp_path):
    """The whole kernel would take minutes twice; the README beside the patches has its commands."""
    here, there = tmp_path / "here", tmp_path / "another/and/a/longer/folder"
    here.mkdir()
    virtual_kernel.unpack(here)
    shutil.copytree(here, there, copy_function=os.link, symlinks=True)
    compiled = objects(here)
    assert f"{GOAL}time.o" in compiled
    assert objects(there) == compiled
    shutil.rmtree(here)
    shutil.rmtree(there)
