"""Programs of other people run between two hosts on both clocks, as docs/programs.md says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testbed.traffic import other_programs
from tests.testbed.traffic.other_programs import PROGRAMS

ROOT = Path(__file__).parents[3]
SCRIPT = Path(other_programs.__file__)
QUICK = {"iperf3", "redis"}
PYTHON = [sys.executable, str(SCRIPT)]
UML = [sys.executable, "-m", "weft.experiments.cli.cli", "uml", "--clock", "virtual", "--"]


def table() -> dict[str, list[str]]:
    """Return the cells of the page's table by program."""
    text = (ROOT / "docs/programs.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \|(.*)\|$", text, re.MULTILINE)
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows}


def outcome(name: str, command: list[str], folder: Path) -> str:
    """Return how a program ended."""
    other_programs.prepare(folder, [name])
    done = subprocess.run(
        [*command, str(folder), name],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("\t")[2].strip()


def test_the_page_has_every_program():
    assert set(PROGRAMS) <= set(table())


@pytest.fixture(
    params=[
        pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in PROGRAMS
    ]
)
def name(request):
    if missing := other_programs.missing(request.param):
        pytest.skip(f"not installed: {', '.join(missing)}")
    return request.param


@pytest.mark.kernel
@pytest.mark.real_clock("the other test has the virtual clock")
def test_a_program_runs_on_the_real_clock_as_the_page_says(name, tmp_path):
    words = outcome(name, PYTHON, tmp_path)
    assert (words == "ok") == table()[name][0].startswith("runs"), words


@pytest.mark.virtual
@pytest.mark.slow
def test_a_program_runs_on_the_virtual_clock_as_the_page_says(name, tmp_path):
    words = outcome(name, [*UML, *PYTHON], tmp_path)
    assert (words == "ok") == table()[name][1].startswith("runs"), words
