"""Threads that simulate parts of one network, under ThreadSanitizer, the detector of races.

python -m tests.fuzz.racing_threads
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.testbed.packets.test_threads import WITH_DRAWS, WITHOUT_DRAWS
from weft.testbed.packets.network import PacketNetwork
from weft.testbed.packets.simulation import simulate
from weft.testbed.traffic import ndp_library

FLAGS = ("-std=gnu11", "-O1", "-g", "-fsanitize=thread", "-shared", "-fPIC")


def library(folder: Path) -> Path:
    """Compile the library into `folder`; return its path."""
    path, rooms = folder / "ndp.so", ndp_library.PATH.parents[1]
    sources = [*rooms.glob("traffic/*.c"), *rooms.glob("packets/*.c")]
    subprocess.run(["gcc", *FLAGS, "-o", str(path), *map(str, sources)], check=True)
    return path


def race(path: Path) -> None:
    """Simulate networks of three parts by the library at `path`."""
    assert PacketNetwork.__init__.__kwdefaults__
    PacketNetwork.__init__.__kwdefaults__["path"] = path
    for spec, scheme, transport in WITHOUT_DRAWS + WITH_DRAWS:
        flows = [
            (host, (host + step) % 12, 100_000 + host) for host in range(12) for step in (1, 3)
        ]
        result = simulate(spec, scheme, flows, transport=transport, threads=3)
        print(f"{spec}, {scheme}, {transport}: {result.transmissions} transmissions")


def main() -> int:
    """Race, and return the exit status of the program: 66 if there was a race."""
    runtime = subprocess.run(
        ["gcc", "-print-file-name=libtsan.so"], check=True, capture_output=True, text=True
    ).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.fuzz.racing_threads", str(library(Path(folder)))]
        environment = ["setarch", "--addr-no-randomize", "env", f"LD_PRELOAD={runtime}"]
        return subprocess.run([*environment, *command], check=False).returncode


if __name__ == "__main__":
    if len(sys.argv) > 1:
        race(Path(sys.argv[1]))
    else:
        sys.exit(main())
