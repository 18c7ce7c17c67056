"""The order of the folders, which keeps protocols apart from the system they run on."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ORDER = ["topologies", "daemons", "testbed", "experiments"]
PURE = ["topologies", "daemons"]
SYSTEM = {
    *("asyncio", "concurrent", "ctypes", "fcntl", "mininet", "mmap", "multiprocessing", "os", "pyroute2", "random"),
    *(
        "sched",
        "secrets",
        "select",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "subprocess",
        "tempfile",
        "threading",
        "time",
    ),
}
# mn reads this file, and it is nothing but Mininet's view of what is built elsewhere
ALLOWED = {"topologies/mininet_topo.py": {"mininet"}}
FILES = [path.relative_to(ROOT).as_posix() for name in ORDER for path in sorted((ROOT / name).rglob("*.py"))]


def imported(source: str) -> set[str]:
    """The packages that `source` imports anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "import by full name: a relative import hides which folder is meant"
            found.add((node.module or "").partition(".")[0])
    return found


@pytest.mark.parametrize("path", FILES)
def test_a_file_imports_only_from_its_left(path):
    folder, found = path.partition("/")[0], imported((ROOT / path).read_text())
    assert not found & set(ORDER[ORDER.index(folder) + 1 :])
    if folder in PURE:
        assert not found & SYSTEM - ALLOWED.get(path, set()), "take time, randomness and packets as arguments"


# Who may tell the time by himself, and why.
TIMEKEEPERS = {
    "testbed/linux/clock.py": "is the clock",
}


@pytest.mark.parametrize("path", [path for path in FILES if path.startswith("testbed/") and path not in TIMEKEEPERS])
def test_the_clock_is_asked_for_the_time(path):
    assert not imported((ROOT / path).read_text()) & {"datetime", "sched", "time"}, "ask testbed.linux.clock"


def test_imports_are_seen_wherever_they_stand():
    assert imported("import os.path\ndef f():\n    from testbed.interop.net import Net") == {"os", "testbed"}


def test_a_daemon_does_without_the_array_library():
    modules = [
        "topologies",
        "topologies.recursive.ccrdn",
        "topologies.recursive.dcell",
        "topologies.recursive.ficonn",
        "topologies.tiered.fattree",
    ]
    modules += [
        "topologies.tiered.clos",
        "topologies.tiered.star",
        "topologies.low_diameter.complete",
        "topologies.core.family",
        "topologies.core.link",
    ]
    modules += ["daemons.core.contract", "daemons.routing.dr", "daemons.routing.shortest", "daemons.routing.updown"]
    program = f"import sys, {', '.join(modules)}; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=30).returncode == 0
