"""Programs and libraries in C: one that is out of date is refused, by the rule that make has."""

import os
import shutil
import subprocess

import pytest

from weft.testbed.linux import compiled
from weft.testbed.linux.libbpf import Object

ROOT = compiled.TESTBED.parent
OBJECTS = [
    *sorted(source.with_suffix(".o") for source in compiled.TESTBED.glob("*/*.bpf.c")),
    compiled.TESTBED / "traffic/libndp.so",
    compiled.TESTBED / "uml/uml_preload.so",
]


def test_a_missing_object_says_how_to_make_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"x\.bpf\.o is missing: `make bpf` compiles it"):
        Object(tmp_path / "x.bpf.o")


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A folder of sources and objects, all of one time."""
    shutil.copytree(
        compiled.TESTBED, tmp_path / "testbed", ignore=lambda _, names: {"__pycache__"} & {*names}
    )
    (tmp_path / "Makefile").touch()
    monkeypatch.setattr(compiled, "TESTBED", tmp_path / "testbed")
    for file in (tmp_path / "testbed").glob("*/*.*"):
        os.utime(file, ns=(0, 0))
    return tmp_path


@pytest.mark.parametrize("path", OBJECTS, ids=lambda path: path.name)
def test_an_object_is_refused_if_a_source_is_newer(checkout, path):
    copy = checkout / path.relative_to(ROOT)
    compiled.require(copy)
    source = compiled.sources(copy)[-1]
    os.utime(source, ns=(1, 1))
    with pytest.raises(FileNotFoundError, match=f"{path.name} is older than {source.name}: "):
        compiled.require(copy)
    (checkout / "Makefile").unlink()  # installed, not a checkout
    compiled.require(copy)


def test_sources_are_those_of_make():
    files = sorted(file for end in "ch" for file in compiled.TESTBED.glob(f"*/*.{end}"))
    for file in files:
        what_if = f"--what-if={file.relative_to(ROOT)}"
        planned = subprocess.run(
            ["make", "--dry-run", what_if, *(str(path.relative_to(ROOT)) for path in OBJECTS)],
            cwd=ROOT,
            text=True,
            capture_output=True,
            check=True,
        ).stdout
        objects = {path.name for path in OBJECTS if f"compile {path.relative_to(ROOT)}" in planned}
        assert objects == {path.name for path in OBJECTS if file in compiled.sources(path)}, file
