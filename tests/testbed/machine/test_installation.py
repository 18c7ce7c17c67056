from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest

import weft
from weft.testbed.machine import installation

WITHOUT_MININET = "import sys; sys.modules['mininet'] = None; from weft import Net"
SCRIPT = """
from weft import LinkSpec, Mbps, Net, OutageProbe, __version__, build, run
from weft.daemons.simulator.simulator import Simulator

fabric = Simulator(build("dcell:n=4,k=1"), "dr")
version: str = __version__
"""
MISTAKES = """
from weft import LinkSpec, Simulator, __version__

link = LinkSpec(rate_bps="20mbit", queue_packets=9)
version: int = __version__
"""


def test_the_version_is_a_public_name():
    assert weft.__version__ == metadata.version("weft-testbed")
    assert "__version__" in dir(weft)


def test_a_name_without_its_package_says_in_one_line_how_to_get_it():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_MININET], capture_output=True, text=True, check=False
    )
    *_, last = done.stderr.splitlines()
    assert last.startswith("ModuleNotFoundError: this needs Mininet of the system: `apt-get")
    assert "mininet/net.py" not in done.stderr  # nor where weft needs it


def test_a_missing_module_of_weft_is_a_fault_of_weft():
    assert installation.missing(ModuleNotFoundError(name="weft.nonsense")) is None


@pytest.mark.slow
@pytest.mark.parametrize(("script", "errors"), [(SCRIPT, 0), (MISTAKES, 3)])
def test_a_strict_script_of_a_user_sees_types(tmp_path, script, errors):
    (tmp_path / "script.py").write_text(script)
    command = [sys.executable, "-P", "-m", "mypy", "--strict", "--no-error-summary", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert len(done.stdout.splitlines()) == errors, done.stdout
    assert done.stderr == ""
