"""Python that root starts runs nothing that lies where it is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from weft.testbed.runs import isolated_python

PICKLE = 'raise SystemExit("another user\'s pickle was imported")'
NAME, OWN, RUN = "pickle", "own_scheme", "timeit"
PRINTS = (
    "import pickle, os, sys; print(pickle.__file__, sys.argv[1:], os.getcwd(), sorted(os.environ))"
)


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """The current folder, and one where PYTHONPATH leads, with another user's pickle."""
    (tmp_path / f"{NAME}.py").write_text(PICKLE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("LD_DEBUG_OUTPUT", "x")
    return tmp_path


@pytest.mark.slow
def test_python_dash_m_runs_what_lies_in_the_current_folder(hostile):
    """So it matters how it is started."""
    done = subprocess.run(
        [sys.executable, "-m", RUN], capture_output=True, text=True, check=False, env={}
    )
    assert done.returncode == 0
    (hostile / f"{RUN}.py").write_text(PICKLE)
    done = subprocess.run(
        [sys.executable, "-m", RUN], capture_output=True, text=True, check=False, env={}
    )
    assert "another user's" in done.stderr


@pytest.mark.parametrize("packages", [False, True])
def test_no_module_comes_from_where_it_is_started(hostile, packages):
    (hostile / f"{OWN}.py").write_text(PRINTS)
    argv = isolated_python.command(OWN, ["a", "b"], packages=packages, search=[Path()])
    environment = isolated_python.environment({"WEFT_RUN": "x"})
    done = subprocess.run(
        argv,
        cwd=isolated_python.FOLDER,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert f"{Path(os.__file__).with_stem(NAME)} ['a', 'b'] / " in done
    assert "WEFT_RUN" in done
    assert "LD_DEBUG_OUTPUT" not in done
    assert "PYTHONPATH" not in done


@pytest.mark.parametrize("packages", [False, True])
def test_no_module_comes_from_the_current_folder_whatever_that_is(hostile, packages):
    """The folder in which a process starts is one safeguard; that Python does not look there is
    another."""
    (hostile / f"{OWN}.py").write_text(PRINTS)
    argv = isolated_python.command(OWN, packages=packages, search=[hostile])
    environment = isolated_python.environment()
    done = subprocess.run(
        argv, cwd=hostile, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert done.startswith(f"{Path(os.__file__).with_stem(NAME)} [] {hostile} ")


@pytest.mark.parametrize("packages", [False, True])
def test_packages_are_found_where_they_are_asked_for(hostile, packages):
    (hostile / f"{OWN}.py").write_text("import importlib.util as u; print(u.find_spec('numpy'))")
    argv = isolated_python.command(OWN, packages=packages, search=[hostile])
    environment = isolated_python.environment()
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout
    assert (done == "None\n") is not packages


def test_weft_is_this_one(hostile):
    """Also where another is installed."""
    (hostile / f"{OWN}.py").write_text("import weft.testbed; print(weft.testbed.__file__)")
    argv = isolated_python.command(OWN, search=[hostile])
    done = subprocess.run(
        argv, cwd="/", env=isolated_python.environment(), capture_output=True, text=True, check=True
    )
    assert Path(done.stdout.strip()).parents[2] == isolated_python.ROOT


def test_all_python_is_started_so():
    """No other file says which interpreter to start; `weft daemon` becomes itself once more, as it
    was started."""
    root = isolated_python.ROOT
    files = [
        file
        for folder in ("daemons", "testbed", "experiments")
        for file in (root / folder).rglob("*.py")
    ]
    others = [
        line
        for file in files
        if file.resolve() != Path(isolated_python.__file__).resolve()
        for line in file.read_text().splitlines()
        if "sys.executable" in line
    ]
    assert len(others) == 1
    assert "os.execve(sys.executable, sys.orig_argv" in others[0]
