"""The wheel of the kernel for virtual time: its content, and a guest that starts from it."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from weft.testbed.uml import kernel_wheel, virtual_kernel

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A wheel of a file that is no kernel."""
    monkeypatch.setattr(kernel_wheel, "SOURCE_VERSION", ("echo", "6.12"))
    kernel = tmp_path / f"linux-{virtual_kernel.identity()}"
    kernel.write_bytes(b"GLIBC_2.2.5 GLIBC_2.34 GLIBC_2.33")
    kernel.with_suffix(".sha256").write_text("a checksum")
    return kernel_wheel.write(kernel, tmp_path)


def test_the_same_kernel_gives_the_same_wheel(small, tmp_path):
    first = small.read_bytes()
    kernel = tmp_path / f"linux-{virtual_kernel.identity()}"
    assert kernel_wheel.write(kernel, tmp_path).read_bytes() == first


def test_a_wheel_names_its_files_its_source_and_its_c_library(small):
    assert small.name.endswith("-py3-none-manylinux_2_34_x86_64.whl")
    archive = zipfile.ZipFile(small)
    names = set(archive.namelist())
    (record,) = (name for name in names if name.endswith("/RECORD"))
    for line in archive.read(record).decode().splitlines():
        path, digest, size = line.split(",")
        names.remove(path)
        if path != record:
            content = archive.read(path)
            expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
            assert digest == f"sha256={expected.decode().rstrip('=')}"
            assert int(size) == len(content)
    assert not names
    folder = f"{virtual_kernel.PACKAGE}/source"
    for path in [virtual_kernel.CONFIG, *virtual_kernel.series()]:
        assert archive.read(f"{folder}/{path.name}") == path.read_bytes()
    assert "linux-source-6.12, version 6.12" in archive.read(f"{folder}/README").decode()
    (licence,) = (name for name in archive.namelist() if name.endswith("GPL-2.0-only.txt"))
    assert b"Version 2, June 1991" in archive.read(licence)


@pytest.mark.virtual
@pytest.mark.slow
def test_a_guest_starts_from_an_installed_wheel(tmp_path):
    """In an environment that finds no other kernel."""
    wheel = kernel_wheel.write(virtual_kernel.require(), tmp_path)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    how = ["--quiet", "--no-index", "--no-deps", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "--python", python, "install", *how, wheel]
    subprocess.run(pip, check=True)
    (site,) = tmp_path.glob("venv/lib/python*/site-packages")
    (site / "weft.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    program = (
        "from weft.testbed.uml import uml, virtual_kernel\n"
        "print(virtual_kernel.find(), flush=True)\n"
        "assert not uml.run(['uname', '-r'], virtual=uml.VirtualClock())"
    )
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    output = subprocess.run(
        [python, "-c", program],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.split()
    assert output[0] == str(site / virtual_kernel.PACKAGE / f"linux-{virtual_kernel.identity()}")
    assert output[1].endswith("-weft")
