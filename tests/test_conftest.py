"""The test session itself: how it ends, and what it leaves out."""

import os
import re
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


NEEDY = """
import pytest
from tests import optional_parts

@pytest.mark.parametrize("number", range(3))
@pytest.mark.virtual
def test_that_boots(number): ...

@optional_parts.with_and_without("virtual")
def test_of_what_is_refused(part):
    assert optional_parts.PARTS["virtual"].exists() == part
"""
IMPORTING = """
import pytest
from tests import optional_parts

pytest.importorskip("scapy", reason=optional_parts.PARTS["scapy"].get)
"""


def run_pytest(folder, *options, environment=None):
    """Run the tests in `folder` with the hooks of conftest.py."""
    argv = ["-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", *options]
    return subprocess.run(
        [sys.executable, *argv, f"--rootdir={folder}", str(folder)],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_fixtures_are_torn_down_after_a_signal(name, tmp_path):
    (tmp_path / "test_killed.py").write_text(TEST.format(name))
    ended = run_pytest(tmp_path)
    assert ended.returncode == pytest.ExitCode.INTERRUPTED, ended.stdout + ended.stderr
    assert (tmp_path / "removed").exists()


def test_a_part_that_is_stated_to_be_absent_is_hidden_and_said_once(tmp_path):
    (tmp_path / "test_needy.py").write_text(NEEDY)
    ended = run_pytest(tmp_path, "--without=virtual", environment={"CI": "true"})
    assert ended.returncode == pytest.ExitCode.OK, ended.stdout
    reasons = re.findall("^skipped .*", ended.stdout, re.MULTILINE)
    assert reasons == ["skipped 3: needs the kernel for virtual time: make uml-kernel"]
    assert "2 passed, 3 skipped" in ended.stdout


def test_in_ci_a_part_that_is_absent_and_not_stated_to_be_fails_its_tests(tmp_path):
    (tmp_path / "test_needy.py").write_text(NEEDY)
    ended = run_pytest(tmp_path, environment={"CI": "true", "WEFT_CACHE": str(tmp_path)})
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED, ended.stdout
    assert re.search("2 passed, .*3 errors", ended.stdout)


@pytest.mark.parametrize("stated", [True, False])
def test_a_file_that_imports_an_absent_part_is_like_a_test_that_needs_it(stated, tmp_path):
    (tmp_path / "test_importing.py").write_text(IMPORTING)
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['scapy'] = None\n")
    ended = run_pytest(
        tmp_path,
        *(["--without=scapy"] if stated else []),
        environment={"CI": "true", "PYTHONPATH": str(tmp_path)},
    )
    outcome = pytest.ExitCode.NO_TESTS_COLLECTED if stated else pytest.ExitCode.INTERRUPTED
    assert ended.returncode == outcome, ended.stdout
    assert "scapy: pip install scapy" in ended.stdout
