"""The kernel for virtual time: the same source gives the same bytes in any folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from weft.testbed.uml import virtual_kernel

GOAL = "arch/um/kernel/"  # with the clock, assembly and constants of the configuration
missing = [tool for tool in virtual_kernel.TOOLS if shutil.which(tool) is None]
PATCH = "description\n--- a/file\n+++ b/file\n@@ -1,1 +1,1 @@\n-old\n+new\n"


def objects(tree: Path) -> dict[str, bytes]:
    """Return the objects that are made in `tree`, with what a debugger reads."""
    for _ in virtual_kernel.make(tree, GOAL):
        pass
    paths = sorted((tree / GOAL).rglob("*.o"))
    return {str(path.relative_to(tree)): path.read_bytes() for path in paths}


def test_the_identity_is_that_of_all_that_the_kernel_is_built_from(tmp_path, monkeypatch):
    """Else a kernel of an earlier source would be run."""
    shutil.copytree(virtual_kernel.FOLDER, tmp_path, dirs_exist_ok=True)
    own = virtual_kernel.identity()
    monkeypatch.setattr(virtual_kernel, "FOLDER", tmp_path)
    monkeypatch.setattr(virtual_kernel, "CONFIG", tmp_path / virtual_kernel.CONFIG.name)
    identities = [virtual_kernel.identity()]
    assert identities == [own]
    (tmp_path / "9999-last.patch").write_text(PATCH)
    identities.append(virtual_kernel.identity())
    (tmp_path / "9999-last.patch").write_text(PATCH.replace("new", "newer"))
    identities.append(virtual_kernel.identity())
    (tmp_path / "9999-last.patch").write_text("another " + PATCH.replace("new", "newer"))
    assert virtual_kernel.identity() == identities[-1], "descriptions are not compiled"
    with virtual_kernel.CONFIG.open("a") as file:
        file.write("CONFIG_ANOTHER=y\n")
    identities.append(virtual_kernel.identity())
    monkeypatch.setattr(virtual_kernel, "BUILD_SETTINGS", ("KBUILD_BUILD_VERSION=2",))
    identities.append(virtual_kernel.identity())
    monkeypatch.setattr(virtual_kernel, "COMPILER_FLAGS", "-O1")
    identities.append(virtual_kernel.identity())
    assert len(set(identities)) == len(identities)


@pytest.mark.slow
@pytest.mark.skipif(
    bool(missing) or not virtual_kernel.SOURCE.exists(),
    reason=f"needs {virtual_kernel.SOURCE.name} and what builds it",
)
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
