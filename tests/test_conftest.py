"""The test session itself: how it ends."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEST = """
import os, pathlib, signal
import pytest

@pytest.fixture
def network():
    yield
    pathlib.Path(__file__).with_name("removed").touch()

def test_that_is_killed(network):
    os.kill(os.getpid(), signal.{})
    signal.pause()
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_fixtures_are_torn_down_after_a_signal(name, tmp_path):
    (tmp_path / "test_killed.py").write_text(TEST.format(name))
    plugins = ["-p", "tests.conftest", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, f"--rootdir={tmp_path}", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == pytest.ExitCode.INTERRUPTED, ended.stdout + ended.stderr
    assert (tmp_path / "removed").exists()
