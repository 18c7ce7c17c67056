"""The commands new and conform: what they write, print and refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from weft.daemons.core import registry
from weft.experiments.cli.cli import main
from weft.experiments.cli.own_commands import PACKAGES
from weft.testbed.labs import lab_file

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.parametrize("kind", PACKAGES)
def test_a_new_package_passes_its_own_tests_and_weft_s_style(kind: str, tmp_path: Path) -> None:
    package, site = tmp_path / "package", tmp_path / "site"
    assert main(["new", kind, f"own_{kind}", "--into", str(package)]) == 0
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--target", str(site)]
    python = partial_run(cwd=tmp_path, PYTHONPATH=os.pathsep.join([str(site), str(ROOT)]))
    python("-m", "pip", "install", "--quiet", *options, str(package))
    python("-m", "pytest", "-q", "-p", "no:cacheprovider", str(package))
    for check in (["check"], ["format", "--check"]):
        python("-m", "ruff", *check, "--config", str(ROOT / "pyproject.toml"), str(package))
    if kind == "scheme":
        python("-m", "weft.experiments.cli.cli", "conform", "own_scheme", "--without-linux")


def partial_run(cwd: Path, **environment: str):
    def run(*argv: str) -> None:
        done = subprocess.run(
            [sys.executable, *argv],
            cwd=cwd,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    return run


def test_a_new_lab_is_one_that_check_reads(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    assert main(["new", "lab", "own", "--into", str(folder)]) == 0
    assert lab_file.parse((folder / "lab.yaml").read_text(), name="own").checks
    assert "own" in (folder / "README.md").read_text()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["scheme", "dr"], "the scheme dr is there already: take another name"),
        (["topology", "dcell"], "the topology dcell is there already: take another name"),
        (["experiment", "link_loss"], "the experiment link_loss is there already"),
        (["scheme", "Mine"], "NAME must be a lower-case letter, then up to 30 of them, digits"),
        (
            ["scheme", "9x"],
            "lower-case letter, then up to 30 of them, digits and _, the last no _, got '9x'",
        ),
        (["rule", "mine_"], "the last no _, got 'mine_'"),
        (["lab", "own", "--into", "."], ". is there already: name another folder with --into"),
    ],
)
def test_what_new_refuses(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", *words]) == 2
    assert line in capsys.readouterr().err


def test_conform_prints_a_line_for_each_engine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", "dr", "dcell:n=3,k=1", "fattree:k=4", "--without-linux"]) == 0
    simulator, packets, refused = capsys.readouterr().out.splitlines()
    assert simulator.split(None, 2) == [
        "dcell:n=3,k=1",
        "simulator",
        "agrees, healthy and with failed links (19 states)",
    ]
    assert packets.split(None, 2) == [
        "dcell:n=3,k=1",
        "packets",
        "agrees, healthy and with failed links (2 states)",
    ]
    assert "left out: scheme dr runs on server-centric networks" in refused


def test_conform_tells_a_scheme_that_fails_everywhere_from_one_that_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first pair differs while all links are whole, on every engine."""
    lost = {**registry.schemes(), "dr": replace(registry.find("dr"), connects=lambda *_: False)}
    monkeypatch.setattr(registry, "schemes", lambda: lost)
    assert main(["conform", "dr", "dcell:n=3,k=1", "--without-linux"]) == 1
    output = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in output] == ["DIFFERS:", "DIFFERS:"]


def test_conform_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", "dr", "dcell:n=3,k=1", "--without-linux", "--json"]) == 0
    engines = [finding["engine"] for finding in json.loads(capsys.readouterr().out)]
    assert engines == ["simulator", "packets"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["static"], "weft: scheme static has no daemons: nothing could differ\n"),
        (["dr", "fattree:k=4"], "weft: dr: no engine could be asked; name a network for it\n"),
    ],
)
def test_what_conform_refuses(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["conform", *words]) == 2
    assert capsys.readouterr().err == line


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("scheme", "status"),
    [("static", 1), ("dr", 2), ("bfs:hello_ms=100", 0), ("bfs:hello_ms=500", 1)],
)
def test_a_new_lab_grades(scheme: str, status: int, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    assert main(["new", "lab", "own", "--into", str(folder)]) == 0
    answer = tmp_path / "answer.yaml"
    answer.write_text(f"scheme: {scheme}\n")
    words = [] if scheme == "static" else ["--answer", str(answer)]
    assert main(["check", str(folder / "lab.yaml"), *words]) == status
