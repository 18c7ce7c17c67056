"""Hostile datagrams for the transport in C, under AddressSanitizer and UndefinedBehaviorSanitizer.

    python -m tests.fuzz.hostile_datagrams [COUNT [SEED]]      # ten million unless told otherwise

hostile_datagrams.c says what they are.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from weft.testbed.traffic import ndp_library

SOURCE = Path(__file__).with_suffix(".c")
COUNT, SEED = 10_000_000, 1
FLAGS = (
    *("-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover", f"-I{ndp_library.PATH.parent}"),
)


def program(folder: Path) -> Path:
    """Compile the attack into `folder`; return its path."""
    path = folder / "hostile_datagrams"
    subprocess.run(["gcc", *FLAGS, "-o", str(path), str(SOURCE)], check=True)
    return path


def main() -> int:
    """Attack, and return the exit status of the program."""
    count, seed, *_ = [*sys.argv[1:], *map(str, (COUNT, SEED)[len(sys.argv) - 1 :])]
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run([program(Path(folder)), count, seed]).returncode


if __name__ == "__main__":
    sys.exit(main())
