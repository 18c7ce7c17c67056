"""Rows of two clocks never meet in one figure."""

import os
from pathlib import Path

import pytest
import quick

from weft.experiments.cli.cli import main
from weft.experiments.report import figures
from weft.experiments.runner import definition
from weft.experiments.runner.definition import Result, Run
from weft.experiments.runner.results import Store

COSTLY = "virtual,hop_ns=500"
ABOUT = {"commit": "abc", "dirty": False}


def entry(**row):
    return {"size": 1, **row}, ABOUT


REAL, VIRTUAL, OTHER = (
    entry(clock="real"),
    entry(clock="virtual"),
    entry(clock="virtual", hop_ns=500),
)
GRAPH = entry(engine="graph")


def test_each_clock_and_its_costs_have_a_figure_of_their_own():
    assert figures.by_clock([OTHER, VIRTUAL, REAL, VIRTUAL]) == {
        "real": [REAL],
        "virtual": [VIRTUAL, VIRTUAL],
        COSTLY: [OTHER],
    }


def test_what_has_no_clock_goes_with_each():
    assert figures.by_clock([GRAPH, VIRTUAL, REAL]) == {
        "real": [GRAPH, REAL],
        "virtual": [GRAPH, VIRTUAL],
    }
    assert figures.by_clock([GRAPH]) == {"": [GRAPH]}


@pytest.fixture
def stored_results(tmp_path, monkeypatch):
    """Results of the experiment `quick`: two of the real clock, one of the virtual one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(definition, "find", lambda name: quick.EXPERIMENT)
    store = Store(Path("results"))
    for size, clock in ((1, "real"), (2, "real"), (1, "virtual")):
        parameters = {"scheme": "dr", "size": size, "load_fraction": 0.5}
        run = Run(
            experiment="quick",
            version=1,
            parameters=parameters,
            seed=0,
            engine="kernel",
            clock=clock,
        )
        store.put(run, Result(figures={"area_bytes": size**2}), ABOUT, 1.0)


def test_export_takes_the_rows_of_the_clock_that_is_named(stored_results, capsys):
    counts = []
    for options in ([], ["--clock", "real"], ["--clock", "virtual"]):
        assert main(["export", "quick", *options]) == 0
        counts.append(len(capsys.readouterr().out.splitlines()) - 1)
    assert counts == [3, 2, 1]
    assert main(["export", "quick", "--clock", "virtual", "--set", "size=2"]) == 2
    said = (
        "nothing of quick under the virtual clock is stored in results; weft run quick "
        "--clock virtual measures it"
    )
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_plot_draws_each_clock_by_itself(stored_results, capsys):
    assert main(["plot", "quick", "-o", "a.svg"]) == 0
    assert capsys.readouterr().out.split() == ["a.svg", "a.virtual.svg"]
    assert "quick   kernel (real clock)   2 runs" in Path("a.svg").read_text()
    assert "quick   kernel (virtual clock)   1 run, seed 0 " in Path("a.virtual.svg").read_text()
    os.remove("a.virtual.svg")
    assert main(["plot", "quick", "--clock", "virtual", "-o", "a.svg"]) == 0
    assert "quick   kernel (virtual clock)   1 run, seed 0 " in Path("a.svg").read_text()
    assert not Path("a.virtual.svg").exists()
