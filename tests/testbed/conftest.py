"""Networks and namespaces for the kernel tests, gone again after each."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import optional_parts
from weft.testbed.linux import cgroup, libbpf, netns
from weft.testbed.network.network import RunningNetwork
from weft.testbed.uml import uml
from weft.topologies import build
from weft.topologies.core.link import LinkSpec, Mbps

LINK = LinkSpec(rate_bps=20 * Mbps, queue_packets=250)

CLANG = [
    "clang",
    "-O2",
    "-g",
    "-target",
    "bpf",
    "-mcpu=v3",
    f"-I/usr/include/{platform.machine()}-linux-gnu",
    "-Wall",
]


@pytest.fixture
def user_mode_linux() -> None:
    """Need Debian's kernel of User-Mode Linux."""
    if not uml.installed():
        optional_parts.refuse(f"{uml.KERNEL}: apt-get install user-mode-linux")


@pytest.fixture(scope="session")
def compiled() -> Callable[[Path], Path]:
    """Compile a BPF program beside its source, unless that has been done."""

    def build(source: Path) -> Path:
        target = source.with_suffix(".o")
        needed = [source, *source.parent.glob("*.h"), *libbpf.DIRECTORY.glob("*.h")]
        if not target.exists() or target.stat().st_mtime < max(
            file.stat().st_mtime for file in needed
        ):
            partial = target.with_suffix(f".{os.getpid()}.o")  # two processes may compile at once
            subprocess.run([*CLANG, "-c", str(source), "-o", str(partial)], check=True)
            partial.replace(target)
        return target

    return build


@pytest.fixture
def spare_netns() -> Iterator[netns.Netns]:
    """An empty namespace."""
    spaces: list[netns.Netns] = []
    name = f"weft.test.{os.urandom(4).hex()}"
    netns.create([name], lambda i: {}, spaces)
    yield spaces[0]
    spaces[0].close()
    netns.forget([name])


@pytest.fixture
def network() -> Iterator[Callable[..., RunningNetwork]]:
    """Make networks; those that are still up after the test are taken down."""
    networks: list[RunningNetwork] = []

    def create(
        spec: str,
        link: LinkSpec | None = LINK,
        scheme: str = "static",
        host_link: LinkSpec | None = None,
        packed: int | None = 0,
        **more: bool,
    ) -> RunningNetwork:
        links = {"link": link, "host_link": host_link}
        networks.append(
            RunningNetwork.create(build(spec), **links, scheme=scheme, packed=packed, **more)
        )
        return networks[-1]

    yield create
    for net in networks:
        if net.run.directory.exists():
            net.down()


@pytest.fixture
def slow_python():
    """Run a Python script with a part of the machine, and return what it prints."""
    try:
        group = cgroup.ControlGroup(f"weft-slow-{os.getpid()}")
    except (ValueError, OSError) as error:
        pytest.skip(str(error))

    def run(fraction: float, script: str, *argv: str) -> str:
        group.limit(fraction * len(os.sched_getaffinity(0)))
        command = [*group.entering(), sys.executable, "-c", script, *argv]
        ended = subprocess.run(command, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    yield run
    cgroup.remove([group.name])


@pytest.fixture
def public_copy() -> Iterator[Path]:
    """Yield a copy of what `testbed/machine` imports, which every user may read, unlike a checkout
    below root's home."""
    left_out = shutil.ignore_patterns("__pycache__", "bpf")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        for part in ("testbed", "daemons", "topologies"):
            shutil.copytree(uml.PROJECT / part, folder / part, ignore=left_out)
        shutil.copytree(uml.PROJECT / "weft", folder / "weft", symlinks=True)
        yield folder
