"""`weft describe`, for people and as JSON."""

from __future__ import annotations

import json

import pytest
import quick

from weft.experiments.cli.cli import main
from weft.experiments.runner import definition
from weft.experiments.runner.definition import Result
from weft.experiments.runner.results import Store


@pytest.fixture
def describe(tmp_path, monkeypatch, capsys):
    """Run `weft describe` on results of this test; status, output, complaints."""
    monkeypatch.setenv("WEFT_RESULTS", str(tmp_path))
    find = definition.find
    monkeypatch.setattr(
        definition, "find", lambda name: quick.EXPERIMENT if name == "quick" else find(name)
    )

    def run(*argv):
        status = main(["describe", *argv])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_an_experiment_of_which_nothing_is_stored(describe):
    status, out, err = describe("link_loss")
    assert (status, err) == (0, "")
    for part in (
        "stored:   0 runs",
        "CCRDN, sections 6.4 and 7.2",
        "failed_links (links)",
        "lost_*_fraction (fraction): pairs that lose each other",
        "default:  30 runs (10 cells, 3 seeds each)",
    ):
        assert part in out
    assert max(map(len, out.splitlines())) <= 110


def test_json_has_what_is_stored_and_what_nobody_explains(describe, tmp_path):
    run = quick.EXPERIMENT.runs()[0]
    Store(tmp_path).put(run, Result(figures={"area_bytes": 1}), {"commit": "abc"}, 2.5)
    status, out, _ = describe("quick", "--json")
    description = json.loads(out)
    assert status == 0
    assert description["stored"] == {"runs": 1, "commits": ["abc"], "median_s": 2.5}
    size = {"meaning": "its side", "unit": "m", "values": "0 .. 1000", "default": [1, 2, 3]}
    assert description["parameters"]["size"] == size
    columns = {column["name"]: column for column in description["columns"]}
    assert columns["area_bytes"] == {"name": "area_bytes", "unit": "bytes", "meaning": ""}
    assert columns["seed"]["meaning"]
    assert (description["default_runs"], description["must_hold"]) == (12, ["right"])


def test_an_experiment_that_there_is_not(describe):
    status, out, err = describe("hop_lenght")
    assert (status, out) == (2, "")
    assert err.startswith("weft: no experiment 'hop_lenght', did you mean hop_length?")
