"""Optional parts of a machine: what each is for a test, and how a test does without it.

A marker with the name of a part (pyproject.toml) skips a test where the part is missing; where CI
is set the test fails, unless the run says by `--without PART` that it does without.  That option
hides a part that is there from all that the run starts, through the product's own probe.

A quick test of what the product does without a part runs in both states on every machine:

    @with_and_without("virtual")
    def test_a_wrong_value_is_refused(part): ...  # part is True where it is there
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import NoReturn

import pytest

from weft.testbed.machine import doctor, features
from weft.testbed.uml import uml, virtual_kernel

Change = Callable[[pytest.MonkeyPatch, Path], None]
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
MPI_PROGRAM = re.compile("mpi|orte|hydra|prte")
LANDLOCK_CREATE_RULESET, CREATE_RULESET_VERSION = 444, 1
LEAST_LANDLOCK = 3  # the first version that covers lengths of files
# linked with a library, it makes all calls of that library's but those for a ruleset
WITHOUT_LANDLOCK = f"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
long syscall(long number, long a, long b, long c, long d, long e, long f)
{{
    long (*real)(long, ...) = dlsym(RTLD_NEXT, "syscall");
    if (number != {LANDLOCK_CREATE_RULESET})
        return real(number, a, b, c, d, e, f);
    errno = ENOSYS;
    return -1;
}}
"""


@dataclass(frozen=True)
class Part:
    """An optional part.

    Attributes:
        get: its name, and how to get it.
        exists: whether it is there, by the probe that the product uses.
        hide: makes that probe fail; the folder is empty, and of this call alone.
        show: makes that probe succeed for tests that do not use the part itself; None if only the
            part itself does so.
    """

    get: str
    exists: Callable[[], bool]
    hide: Change
    show: Change | None = None


def hide_virtual_kernel(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Take an empty cache, and nothing to build a kernel from."""
    monkeypatch.setenv("WEFT_CACHE", str(folder))
    monkeypatch.setattr(virtual_kernel, "PACKAGE", "weft_has_no_such_package")
    monkeypatch.setattr(virtual_kernel, "SOURCE", folder / virtual_kernel.SOURCE.name)


def show_virtual_kernel(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Take a cache with a kernel that does not boot."""
    monkeypatch.setenv("WEFT_CACHE", str(folder))
    kernel = folder / f"linux-{virtual_kernel.identity()}"
    kernel.write_bytes(b"a kernel")
    kernel.with_suffix(".sha256").write_text(hashlib.sha256(b"a kernel").hexdigest())


def hide_module(name: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let a Python package, and what has been imported of it, look as if not installed."""
    for module in [key for key in sys.modules if key.partition(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    (folder / "sitecustomize.py").write_text(f"import sys; sys.modules[{name!r}] = None\n")
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)


def module(name: str, get: str) -> Part:
    return Part(get, lambda: importlib.util.find_spec(name) is not None, partial(hide_module, name))


def change_feature(
    name: str, attempt: features.FeatureTest, monkeypatch: pytest.MonkeyPatch, _: Path
) -> None:
    """Let `weft doctor`, and what asks it, try `attempt` for a feature."""
    for table in ("TRIES", "PROGRAMS"):
        tries = [
            replace(probe, attempt=attempt) if probe.name == name else probe
            for probe in getattr(doctor, table)
        ]
        monkeypatch.setattr(doctor, table, tries)
    monkeypatch.setattr(doctor, "_stored", list)


def feature(name: str, get: str, exists: Callable[[], bool]) -> Part:
    def fail(scratch: features.Scratch) -> None:
        raise FileNotFoundError(2, f"no {name}")

    return Part(
        get,
        exists,
        partial(change_feature, name, fail),
        partial(change_feature, name, lambda scratch: None),
    )


def hide_mpi(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Take a PATH with every program but those that start programs of an MPI."""
    for place in reversed(os.get_exec_path()):
        for program in Path(place).glob("*"):
            if not MPI_PROGRAM.match(program.name):
                (folder / program.name).unlink(missing_ok=True)
                (folder / program.name).symlink_to(program)
    monkeypatch.setenv("PATH", str(folder))


def landlock_version() -> int:
    """Return the version of this kernel's Landlock; -1: it has none."""
    version = ctypes.CDLL(None).syscall(LANDLOCK_CREATE_RULESET, None, 0, CREATE_RULESET_VERSION)
    return int(version)


def hide_landlock(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Confine kernels of User-Mode Linux by a library that is refused every ruleset."""
    (folder / "without.c").write_text(WITHOUT_LANDLOCK)
    library = folder / uml.PRELOADED.name
    sources = [folder / "without.c", *uml.HERE.glob("*.c")]
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, *sources], check=True)
    monkeypatch.setattr(uml, "PRELOADED", library)
    monkeypatch.setattr(sys.modules[__name__], "landlock_version", lambda: -1)


def hide_display(monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    for name in DISPLAYS:
        monkeypatch.delenv(name, raising=False)


def show_display(monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    """Name a display at which nobody answers: nothing may ask for it."""
    for name in DISPLAYS:
        monkeypatch.setenv(name, ":4711")


@cache
def has_module(name: str) -> bool:
    """Return whether this kernel has the module: loaded, built in, or to be loaded."""
    try:
        argv = ["modprobe", "--dry-run", "--quiet", name]
        return subprocess.run(argv, check=False).returncode == 0
    except FileNotFoundError:
        return False


PARTS = {
    "display": Part(
        "a display: DISPLAY", lambda: any(map(os.getenv, DISPLAYS)), hide_display, show_display
    ),
    "frr": feature("frr", "FRR: apt-get install frr", features.FRR.exists),
    "landlock": Part(
        "Landlock of Linux 6.2, for files: CONFIG_SECURITY_LANDLOCK",
        lambda: landlock_version() >= LEAST_LANDLOCK,
        hide_landlock,
    ),
    "mininet": module("mininet", "Mininet: apt-get install mininet"),
    "mpi": Part(
        "an MPI: apt-get install openmpi-bin",
        lambda: shutil.which("mpirun.openmpi") is not None,
        hide_mpi,
    ),
    "netem": feature("netem", "netem: modprobe sch_netem", lambda: has_module("sch_netem")),
    "scapy": module("scapy", "scapy: pip install scapy"),
    "virtual": Part(
        "the kernel for virtual time: make uml-kernel",
        lambda: virtual_kernel.find() is not None,
        hide_virtual_kernel,
        show_virtual_kernel,
    ),
}
stated: set[str] = set()  # parts that this run does without


def do_without(name: str) -> Callable[[], None]:
    """Hide a part from this process and those that it starts; return what undoes that."""
    monkeypatch = pytest.MonkeyPatch()
    folder = tempfile.mkdtemp(prefix="weft-without-")
    PARTS[name].hide(monkeypatch, Path(folder))
    stated.add(name)

    def undo() -> None:
        stated.discard(name)
        monkeypatch.undo()
        shutil.rmtree(folder)

    return undo


def require(name: str) -> None:
    """Skip the test, or fail it, if a part is missing."""
    if not PARTS[name].exists():
        refuse(PARTS[name].get)


def refuse(missing: str) -> NoReturn:
    """Skip a test, or fail it unless it may_skip()."""
    (pytest.skip if may_skip(missing) else pytest.fail)(f"needs {missing}")


def may_skip(reason: str) -> bool:
    """Return whether a test may be skipped for this reason: stated, or not in CI."""
    return "CI" not in os.environ or any(PARTS[name].get in reason for name in stated)


def with_and_without(name: str) -> pytest.MarkDecorator:
    """Run a test twice: its fixture `part` is True with a part, and False without it."""
    states = [
        pytest.param((name, True), id=f"with-{name}"),
        pytest.param((name, False), id=f"without-{name}"),
    ]
    return pytest.mark.parametrize("part", states, indirect=True)


def change(name: str, there: bool, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Bring a test into one of the two states of a part."""
    part = PARTS[name]
    if not there:
        part.hide(monkeypatch, folder)
    elif part.show:
        part.show(monkeypatch, folder)
    else:
        require(name)
