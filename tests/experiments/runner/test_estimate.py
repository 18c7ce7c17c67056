"""The time that runs are expected to take."""

from __future__ import annotations

from dataclasses import replace

import pytest
from quick import EXPERIMENT

from weft.experiments.runner.console import duration
from weft.experiments.runner.definition import Result, discover, find
from weft.experiments.runner.results import Store
from weft.experiments.runner.sweep import declared, estimates, total_s


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def put_run(store, run, wall_s):
    store.put(run, Result(figures={"area_bytes": 1}), {}, wall_s)


def test_without_stored_runs_and_declaration_the_time_is_unknown(store):
    runs = EXPERIMENT.runs()
    expected = estimates(EXPERIMENT, runs, store)
    assert set(expected.values()) == {None}
    assert total_s(expected, 2) is None


def test_what_the_experiment_declares_is_of_two_cores(store):
    runs = EXPERIMENT.runs()
    expected = estimates(replace(EXPERIMENT, takes_s=60.0), runs, store)
    assert total_s(expected, 2) == pytest.approx(60)
    assert total_s(expected, 1) == pytest.approx(120)


def test_runs_on_the_kernel_come_one_after_the_other(store):
    one_engine = replace(EXPERIMENT, takes_s=60.0, engines=("kernel",))
    expected = estimates(one_engine, one_engine.runs(), store)
    assert total_s(expected, 2) == total_s(expected, 1) == pytest.approx(60)


def test_stored_runs_of_the_same_cell_say_more_than_others(store):
    runs = EXPERIMENT.runs({"scheme": "dr", "size": "1,2"}, seeds=2)
    put_run(store, runs[0], 10.0)
    put_run(store, runs[2], 20.0)
    expected = estimates(EXPERIMENT, [*runs, *EXPERIMENT.runs({"size": "3"}, seeds=1)], store)
    assert list(expected.values()) == [10, 10, 20, 20, 15, 15]


def test_another_engine_says_nothing(store):
    on_kernel = EXPERIMENT.runs({"scheme": "dr", "size": "1"}, seeds=1, engines=["kernel"])
    put_run(store, EXPERIMENT.runs({"scheme": "dr", "size": "1"}, seeds=1)[0], 10.0)
    assert list(estimates(EXPERIMENT, on_kernel, store).values()) == [None]


def test_the_longest_run_bounds_what_many_processes_take():
    runs = EXPERIMENT.runs({"size": "1"}, seeds=2)
    assert total_s(dict(zip(runs, [1.0, 1.0, 1.0, 9.0], strict=True)), 4) == 9


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0031, "3.1 ms"), (99.9, "99.9 s"), (119.7, "2 min 0 s"), (200, "3 min 20 s")],
)
def test_a_duration_never_has_sixty_seconds(seconds, text):
    assert duration(seconds) == text


@pytest.mark.slow
@pytest.mark.parametrize("name", discover())
def test_the_declared_time_is_that_of_the_default_runs(name):
    experiment = find(name)
    assert (declared(experiment) is None) == (experiment.takes_s is None)
