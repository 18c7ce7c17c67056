"""Modules that cost each of hundreds of daemons memory are not imported."""

from __future__ import annotations

import subprocess
import sys

from weft.testbed.runs import isolated_python

# threading has every process that is forked with it write to 0.4 MB at once; the others are large.
HEAVY = {
    "threading",
    "logging",
    "random",
    "hashlib",
    "ssl",
    "subprocess",
    "importlib.metadata",
    "numpy",
    "networkx",
    "asyncio",
    "pyroute2",
}


def heavy(*imports: str) -> set[str]:
    """Those of HEAVY that a daemon's process has once it has imported these."""
    program = f"import sys, {', '.join(imports)}; print(*sys.modules)"
    command = [sys.executable, "-S", "-c", program]
    done = subprocess.run(
        command, cwd=isolated_python.ROOT, capture_output=True, text=True, check=True
    )
    return HEAVY & set(done.stdout.split())


def test_a_supervisor_and_the_daemons_of_all_schemes_import_nothing_heavy() -> None:
    rooms = sorted((isolated_python.ROOT / "daemons").glob("*/daemon.py"))
    assert len(rooms) > 4
    modules = [f"weft.daemons.{file.parent.name}.daemon" for file in rooms]
    assert heavy("weft.testbed.node_daemon.supervisor", *modules) == set()


def test_what_is_heavy_is_seen() -> None:
    assert heavy("threading") == {"threading"}
