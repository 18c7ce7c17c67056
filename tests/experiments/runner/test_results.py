import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet
import pytest
from quick import EXPERIMENT, measure

from experiments.runner.definition import Result
from experiments.runner.parameters import Integer
from experiments.runner.results import Store, row_of

ABOUT = {"commit": "abc", "dirty": False}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


def put(store, run):
    store.put(run, measure(run), ABOUT, 0.25)


def test_a_row_comes_back_as_it_was_with_its_circumstances(store):
    run = EXPERIMENT.runs({"scheme": "dr", "size": "3"}, engines=["kernel"])[0]
    put(store, run)
    row = {"scheme": "dr", "size": 3, "load_fraction": 0.5, "area_bytes": 9, "delays_us": [1.5, 0.0], "right": True}
    (stored,) = store.rows([run])
    assert stored == {**row, "seed": 0, "engine": "kernel", "fidelity": "FAIL", "run": run.id}
    about = json.loads(store.path(run).with_suffix(".json").read_text())
    assert about == {
        "run": {**run.content, "id": run.id},
        "commit": "abc",
        "dirty": False,
        "seen": "here",
        "fidelity": "FAIL",
        "wall_s": 0.25,
    }
    assert store.table(EXPERIMENT) == [(stored, about)]


def test_only_where_something_is_emulated_is_there_fidelity(store):
    run = EXPERIMENT.runs()[0]
    put(store, run)
    assert "fidelity" not in store.rows([run])[0]


def test_other_tools_read_the_rows(store):
    for run in EXPERIMENT.runs():
        put(store, run)
    table = pyarrow.parquet.read_table(sorted((store.root / "quick").glob("*.parquet")))
    assert table.num_rows == 12
    assert {"size", "area_bytes", "seed", "engine", "run"} <= set(table.column_names)


def test_circumstances_without_a_row_are_no_result(store):
    run = EXPERIMENT.runs()[0]
    put(store, run)
    assert run in store
    store.path(run).unlink()
    assert run not in store
    assert store.rows([run]) == []
    assert store.table(EXPERIMENT) == []


def test_rows_of_another_version_do_not_answer_the_question(store):
    put(store, EXPERIMENT.runs()[0])
    assert len(store.table(EXPERIMENT)) == 1
    assert store.table(replace(EXPERIMENT, version=2)) == []
    more = {**EXPERIMENT.parameters, "more": Integer(meaning="more", least=0, most=9)}
    assert store.table(replace(EXPERIMENT, sweep={**EXPERIMENT.sweep, "more": [1]}, parameters=more)) == []


def test_the_table_is_in_order(store):
    for run in reversed(EXPERIMENT.runs({"size": "10,9"})):
        put(store, run)
    order = [(row["scheme"], row["size"], row["seed"]) for row, _ in store.table(EXPERIMENT)]
    assert order == sorted(order)


def test_unfinished_files_of_the_dead_are_removed_and_no_others(store):
    gone = subprocess.Popen(["true"])
    gone.wait()
    folder = store.root / "quick"
    folder.mkdir(parents=True)
    dead, live = (folder / f".x.parquet.{pid}.tmp" for pid in (gone.pid, os.getpid()))
    for path in (dead, live, folder / "other.tmp"):
        path.write_bytes(b"")
    store.sweep_up()
    assert {path.name for path in folder.iterdir()} == {live.name, "other.tmp"}


@pytest.mark.parametrize(
    ("figures", "says"),
    [
        ({"size": 1}, "figure size has the name of a parameter or circumstance"),
        ({"seed": 1}, "figure seed has the name of a parameter or circumstance"),
        ({"x_s": float("nan")}, "figure x_s is nan; what could not be measured is None"),
        ({"x_s": [1.0, float("inf")]}, "figure x_s is inf; what could not be measured is None"),
    ],
)
def test_figures_that_say_two_things_or_nothing_are_refused(figures, says):
    with pytest.raises(ValueError, match="figure") as error:
        row_of(EXPERIMENT.runs()[0], Result(figures=figures))
    assert str(error.value) == says


def test_a_file_is_whole_or_not_there(store, monkeypatch):
    run = EXPERIMENT.runs()[0]
    put(store, run)
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        put(store, run)
    assert run not in store
