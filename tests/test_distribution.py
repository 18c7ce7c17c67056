"""The wheel of `make dist` works in an environment of its own, outside the checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("topologies", "daemons", "testbed", "experiments")
NEEDED = (
    "Makefile",
    "pyproject.toml",
    "setup.py",
    "MANIFEST.in",
    "README.md",
    "CHANGES.md",
    "CITATION.cff",
    "SECURITY.md",
)
NEEDED += ("LICENSE", "LICENSES", "constraints.txt", "weft", *FOLDERS)
OWN = "raise SystemExit('a folder of the user was imported')"
# In a folder with packages of the user's that are called as ours are: both are imported.
BOTH = """
import experiments, topologies, testbed, daemons, weft, weft.experiments
assert experiments.MINE and weft.experiments.__file__ != experiments.__file__
from weft import Mbps, LinkSpec, build, run
assert build("dcell:n=4,k=1").servers == 20 and LinkSpec(rate_bps=Mbps, queue_packets=9).rate_bps == 1_000_000
rows = run("link_loss", topology="dcell:n=3,k=1", failed_links=[0, 1], seeds=1, engine="graph")
assert [row["failed_links"] for row in rows] == [0, 1]
from weft.testbed.traffic import ndp_library
print(ndp_library.PATH.stat().st_size > 0, weft.__file__)
"""  # noqa: E501

pytestmark = pytest.mark.slow


def tracked_files() -> set[str]:
    """Files of the four folders, as they lie in the package."""
    listed = subprocess.run(
        ["git", "ls-files", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {f"weft/{path}" for path in listed.stdout.split() if (ROOT / path).exists()}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A copy of the checkout, so that nothing is built in it."""
    copy = tmp_path_factory.mktemp("sources") / "weft"
    copy.mkdir()
    for name in NEEDED:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(
                path, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(path, copy)
    (copy / "testbed/data_plane/gone.bpf.o").write_bytes(b"of a program that there was once")
    return copy


@pytest.fixture(scope="module")
def wheel(sources, tmp_path_factory):
    """A wheel, made without network."""
    into = tmp_path_factory.mktemp("dist")
    how = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", into]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *how, sources], check=True)
    (found,) = into.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def weft(wheel, tmp_path_factory):
    """Run a program of an environment in which the wheel is installed, in a folder that has
    packages called as ours.

    What weft needs is taken from the environment of the checkout, but not what that has of the
    system: no Mininet.
    """
    home = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home / "venv"], check=True)
    python = home / "venv/bin/python"
    how = ["--quiet", "--no-index", "--no-deps", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", *how, wheel], check=True
    )
    (site,) = home.glob("venv/lib/python*/site-packages")
    (site / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    for name in FOLDERS:
        (home / "work" / name).mkdir(parents=True)
        (home / "work" / name / "__init__.py").write_text("MINE = True\n")
        (home / "work" / name / "commands.py").write_text(OWN)

    def run(program, *argv):
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        argv = [home / "venv/bin" / program, *argv]
        return subprocess.run(
            argv, cwd=home / "work", env=environment, capture_output=True, text=True, check=False
        )

    return run


def test_the_wheel_has_every_file_and_no_old_program(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert not (missing := tracked_files() - names), (
        f"pyproject.toml names no such package data: {missing}"
    )
    compiled = {name.replace(".c", ".o") for name in names if name.endswith(".bpf.c")}
    assert compiled
    assert {name for name in names if name.endswith(".bpf.o")} == compiled
    assert {"weft/testbed/traffic/libndp.so", "weft/testbed/uml/uml_preload.so"} <= names
    assert {Path(name).name for name in names if "/licenses/" in name} >= {
        "LICENSE",
        "GPL-2.0-only.txt",
        "d3.LICENSE.txt",
    }


def test_two_builds_from_sources_alone_are_alike(sources, wheel, tmp_path):
    """In two folders, without compiled programs; options of the environment count."""
    contents = []
    for folder, flags in (("one", ""), ("two/deeper", ""), ("three", "-O0")):
        copy = tmp_path / folder / "weft"
        ignored = shutil.ignore_patterns("*.bpf.o", "build")
        shutil.copytree(sources, copy, symlinks=True, ignore=ignored)
        environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000", "CFLAGS": flags}
        how = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir"]
        argv = [sys.executable, "-m", "pip", "wheel", *how, tmp_path / folder, copy]
        subprocess.run(argv, env=environment, check=True)
        contents.append((tmp_path / folder / wheel.name).read_bytes())
    assert contents[0] == contents[1] != contents[2]


def test_the_wheel_is_for_this_machine_and_any_python(wheel):
    assert wheel.name.startswith("weft_testbed-")
    python, abi, platform = wheel.stem.split("-")[-3:]
    assert (python, abi) == ("py3", "none")
    assert platform.startswith("manylinux_2_")
    assert platform.endswith(os.uname().machine)


def test_the_archive_of_sources_has_every_file(sources, tmp_path):
    build = f"from setuptools import build_meta; print(build_meta.build_sdist({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", build], cwd=sources, capture_output=True, check=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert not tracked_files() - names
    assert {
        "setup.py",
        "LICENSE",
        "LICENSES/GPL-2.0-only.txt",
        "weft/testbed/data_plane/select.bpf.o",
    } <= names


def test_it_runs_where_it_is_installed(weft):
    listed = weft("weft", "list", "--json")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert {entry["name"] for entry in json.loads(listed.stdout)["experiments"]} >= {
        "link_loss",
        "hop_length",
    }
    topo = weft("weft", "topo", "dcell:n=4,k=1", "--json")
    assert json.loads(topo.stdout)["servers"] == 20
    assert re.fullmatch(
        r"weft 0\.[0-9.]+ \(/\S+/site-packages\)\n", weft("weft", "--version").stdout
    )


@pytest.mark.parametrize("engine", ["graph", "fabric"])
def test_it_measures_on_graphs_and_in_the_simulator(weft, engine):
    cell = ["topology=dcell:n=3,k=1", "failed_links=1"]
    done = weft(
        "weft", "run", "link_loss", "--engine", engine, "--set", *cell, "--seeds", "1", "--json"
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert row["lost_graph_fraction"] > 0
    assert ("lost_fabric_fraction" in row) == (engine == "fabric")


def test_packages_of_the_user_do_not_clash(weft):
    done = weft("python", "-c", BOTH)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("True ")
    assert "site-packages/weft" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to get so far")
def test_what_needs_mininet_says_how_to_get_it(weft):
    done = weft("weft", "up", "star:n=2")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "apt-get install mininet" in line


def test_a_strict_script_sees_types(weft, tmp_path):
    (tmp_path / "script.py").write_text(
        "from weft import build\n\nreveal_type(build('dcell:n=4,k=1'))\n"
    )
    done = weft("python", "-m", "mypy", "--strict", tmp_path / "script.py")
    assert 'Revealed type is "weft.topologies.core.topology.Topology"' in done.stdout
    assert done.returncode == 0, done.stdout


# A program that rewrites and one that traces.
@pytest.mark.parametrize("program", ["data_plane/select_blind", "measure/fidelity"])
def test_programs_are_the_same_for_every_processor(program, tmp_path):
    """So a wheel needs one of each; with compile-once, libbpf adapts them to the kernel."""
    object_file = f"testbed/{program}.bpf.o"
    said = subprocess.run(
        ["make", "--dry-run", "--always-make", "--old-file=.venv/.ready", object_file],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    (command,) = [line for line in said.splitlines() if line.startswith("clang")]
    contents = []
    for machine in ("x86", "arm64"):
        argv = [
            f"-D__TARGET_ARCH_{machine}" if word.startswith("-D__TARGET_ARCH_") else word
            for word in command.split()
        ]
        argv[argv.index("-o") + 1] = str(tmp_path / "program.o")
        subprocess.run(argv, cwd=ROOT, check=True)
        contents.append((tmp_path / "program.o").read_bytes())
    assert contents[0] == contents[1]
