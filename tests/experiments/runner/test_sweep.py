import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import quick
from quick import EXPERIMENT

from weft.experiments.runner import virtual_runs
from weft.experiments.runner.definition import Result, Run
from weft.experiments.runner.results import RunClaim, Store
from weft.experiments.runner.sweep import remaining, sweep
from weft.experiments.runner.virtual_runs import differences
from weft.testbed.uml import uml


class Watcher:
    def __init__(self):
        self.seen = []

    def ended(self, run, failure, *seconds):
        self.seen.append((run, failure))


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


def carry_out(runs, store, experiment=EXPERIMENT, jobs=1, watcher=None, **options):
    about = {"commit": None, "dirty": False}
    return sweep(
        experiment, runs, store, workers=jobs, about=about, watcher=watcher or Watcher(), **options
    )


@pytest.mark.parametrize("jobs", [1, 3])
def test_every_run_is_measured_once_and_told_of(tmp_path, monkeypatch, store, jobs):
    log = tmp_path / "log"
    monkeypatch.setenv("WEFT_TEST_LOG", str(log))
    watcher, runs = Watcher(), EXPERIMENT.runs({"size": "1,2,3,4,5"})
    assert remaining(runs, store) == runs
    assert carry_out(runs, store, jobs=jobs, watcher=watcher).failures == {}
    assert sorted(log.read_text().split()) == sorted(run.id for run in runs)
    assert {run for run, _ in watcher.seen} == set(runs)
    assert [row["run"] for row in store.rows(runs)] == [run.id for run in runs]
    assert remaining(runs, store) == []
    assert set(store.states("quick").items()) == {(run.id, "done") for run in runs}


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_that_fails_does_not_end_the_sweep(store, jobs):
    runs = EXPERIMENT.runs({"scheme": "dr,broken,bfs", "size": "1"}, seeds=1)
    failures = carry_out(runs, store, jobs=jobs).failures
    assert {run: failure.reason for run, failure in failures.items()} == {
        runs[1]: "RuntimeError: the reason"
    }
    assert store.failures("quick") == {runs[1].id: failures[runs[1]]}
    assert "in measure" in failures[runs[1]].traceback
    assert [row["scheme"] for row in store.rows(runs)] == ["dr", "bfs"]
    assert remaining(runs, store) == [runs[1]]


def ends_the_process(run):
    sys.exit(f"no size {run.integer('size')}")


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_experiment_that_would_end_the_process_fails_alone(store, jobs):
    runs = EXPERIMENT.runs({"scheme": "dr", "size": "1,2"}, seeds=1)
    experiment = replace(EXPERIMENT, measure=ends_the_process)
    failures = carry_out(runs, store, experiment, jobs=jobs).failures
    reasons = [failures[run].reason for run in runs]
    assert reasons == ["SystemExit: no size 1", "SystemExit: no size 2"]


def not_a_number(run):
    return Result(figures={"x_s": float("nan")})


def test_figures_that_cannot_be_stored_are_a_failure_of_the_run(store):
    runs = EXPERIMENT.runs(seeds=1)[:1]
    failures = carry_out(runs, store, replace(EXPERIMENT, measure=not_a_number)).failures
    assert (
        failures[runs[0]].reason
        == "ValueError: figure x_s is nan; what could not be measured is None"
    )


def no_model(run):
    raise RuntimeError("no\nmodel")


def areas_again(run):
    return {"area_bytes": 1, "model_bytes": 2}


@pytest.mark.parametrize(("predict", "says"), [
    (no_model, "RuntimeError: no model"),
    (areas_again, "ValueError: quick: area_bytes is both measured and predicted"),
])  # fmt: skip
@pytest.mark.parametrize("clock", ["real", "virtual"])
def test_a_prediction_that_fails_is_a_failure_of_the_run(store, monkeypatch, clock, predict, says):
    experiment = replace(EXPERIMENT, predict=predict)
    measure_virtually(monkeypatch, experiment)
    runs = experiment.plan({"size": "1", "scheme": "dr"}, seeds=1, clock=clock).runs
    failures = carry_out(runs, store, experiment).failures
    assert [failure.reason for failure in failures.values()] == [says]
    assert remaining(runs, store) == runs


@pytest.mark.parametrize("clock", ["real", "virtual"])
def test_what_is_predicted_stands_after_what_is_measured(store, monkeypatch, clock):
    """It is computed when the run has been measured, by this process also where another kernel has
    measured it."""
    order = []

    def measure(run):
        order.append("measure")
        return quick.measure(run)

    def predict(run):
        order.append("predict")
        return {"model_bytes": np.float64(run.integer("size"))}

    experiment = replace(EXPERIMENT, measure=measure, predict=predict)
    inside = measure_virtually(monkeypatch, experiment)
    runs = experiment.plan(
        {"size": "2", "scheme": "dr"}, seeds=1, engines=["kernel"], clock=clock
    ).runs
    assert carry_out(runs, store, experiment).failures == {}
    (row,) = store.rows(runs)
    figures = [key for key in row if key in ("area_bytes", "delays_us", "right", "model_bytes")]
    assert figures == ["area_bytes", "delays_us", "right", "model_bytes"]
    assert (row["area_bytes"], row["model_bytes"]) == (4, 2.0)
    assert store.provenance(runs[0])["seen"] == "here"
    assert order == ["measure", "predict"]
    assert len(inside) == (clock == "virtual")
    assert all("model_bytes" not in told["result"]["figures"] for told in inside)
    assert all(told["about"].keys() == {"machine"} for told in inside)  # no git inside
    if inside:
        assert differences(runs, [row]) == []


def measure_virtually(monkeypatch, experiment):
    """Let the part of a virtual run that happens inside happen here; returns what it tells, of each
    run."""
    told = []

    def run(argv, *, exchange, **options):
        asked = Run(**json.loads(exchange.inputs[virtual_runs.RUN]))
        told.append(virtual_runs.answer(asked))
        exchange.report = json.dumps(told[-1])
        return 0

    monkeypatch.setattr(uml, "run", run)
    monkeypatch.setattr(virtual_runs, "find", lambda name: experiment)
    monkeypatch.setattr(virtual_runs, "clock", SimpleNamespace(monotonic=lambda: 0.0))
    return told


def die(run):
    if run.seed == 1:
        os._exit(3)
    return quick.measure(run)


def test_a_process_that_dies_costs_one_run(store):
    runs = EXPERIMENT.runs({"scheme": "dr", "size": "1,2"}, seeds=4)
    failures = carry_out(runs, store, replace(EXPERIMENT, measure=die), jobs=2).failures
    assert {run.seed for run in failures} == {1}
    assert {f.reason for f in failures.values()} == {
        "the process that measured it died (exit status 3)"
    }
    assert len(store.rows(runs)) == 6


def test_a_result_that_was_stored_just_before_a_kill_counts(store):
    runs = EXPERIMENT.runs()[:2]
    store.put(runs[0], quick.measure(runs[0]), {}, 0.25)
    assert remaining(runs, store) == runs[1:]
    assert store.states("quick") == {runs[0].id: "done"}


def interrupt_while_leaving(run):
    try:
        return interrupt(run)
    except KeyboardInterrupt:
        raise RuntimeError("the helper died of the same Ctrl-C")  # noqa: B904  as leaving a context does


def interrupt(run):
    if run.seed == 2:
        raise KeyboardInterrupt
    return quick.measure(run)


@pytest.mark.parametrize("how", [interrupt, interrupt_while_leaving])
def test_what_was_finished_before_an_interrupt_is_kept(store, how):
    runs = EXPERIMENT.runs({"scheme": "dr", "size": "1"}, seeds=4)
    with pytest.raises(KeyboardInterrupt):
        carry_out(runs, store, replace(EXPERIMENT, measure=how))
    assert remaining(runs, store) == runs[2:]


def weft(tmp_path, *argv, pause_s=0.0):
    """`weft` with the quick experiment only, in a session of its own, so that all its processes can
    be seen."""
    environment = {
        **os.environ,
        "WEFT_RESULTS": str(tmp_path / "results"),
        "WEFT_TEST_LOG": str(tmp_path / "log"),
        "WEFT_TEST_PAUSE_S": str(pause_s),
    }
    command = [sys.executable, str(Path(quick.__file__)), *argv]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, start_new_session=True, **pipes)


def wait_until(true):
    end = time.monotonic() + 300
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)


def measurements(tmp_path):
    log = tmp_path / "log"
    return log.read_text().split() if log.exists() else []


def has_ended(group):
    """Return whether no process of the group runs; a dead one may wait for its parent."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                return False
    return True


def stored_ids(tmp_path):
    return set(Store(tmp_path / "results").states("quick"))


@pytest.mark.slow
def test_a_sweep_killed_at_any_moment_is_resumed_without_repeating_or_losing_a_run(tmp_path):
    sizes = ",".join(map(str, range(10)))
    runs = EXPERIMENT.runs({"size": sizes})
    chance, kills, kept = random.Random(7), 2, []
    for kill in range(kills):
        process = weft(
            tmp_path, "run", "quick", "--set", f"size={sizes}", "--jobs", "2", pause_s=0.01
        )
        at = 8 * kill + chance.randrange(8)
        wait_until(lambda at=at: len(measurements(tmp_path)) > at)
        time.sleep(chance.random() * 0.02)
        process.kill()
        process.communicate()
        wait_until(
            lambda group=process.pid: has_ended(group)
        )  # the processes of the sweep die with it
        kept.append((stored_ids(tmp_path), len(measurements(tmp_path))))
    process = weft(tmp_path, "run", "quick", "--set", f"size={sizes}", "--json")
    out, err = process.communicate()
    assert process.returncode == 1, err  # size 7 is not right
    assert out.count('"run": ') == len(runs)
    assert stored_ids(tmp_path) == {run.id for run in runs}
    # nothing stored is repeated
    assert all(done and not done & set(measurements(tmp_path)[at:]) for done, at in kept)
    # Only what was under way when the sweep was killed, a run in each process, is measured again.
    assert len(runs) <= len(measurements(tmp_path)) <= len(runs) + 2 * kills
    store = Store(tmp_path / "results")
    assert len(store.table(EXPERIMENT)) == len(runs)
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["results.sqlite"]


@pytest.mark.slow
def test_two_sweeps_of_the_same_cells_measure_each_run_once(tmp_path):
    argv = ["run", "quick", "--set", "size=0,1,2,3,4,5,6", "--jobs", "2", "--json"]
    runs = EXPERIMENT.runs({"size": "0,1,2,3,4,5,6"})
    both = [weft(tmp_path, *argv, pause_s=0.03) for _ in "12"]
    answers = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    assert sorted(measurements(tmp_path)) == sorted(run.id for run in runs)
    assert [[row["run"] for row in json.loads(out)] for out, _ in answers] == [
        [run.id for run in runs]
    ] * 2
    now = [int(err.split(" measured now")[0].split()[-1]) for _, err in answers]
    assert sum(now) == len(runs)


@pytest.mark.slow
def test_a_sweep_takes_over_what_another_was_measuring_when_it_was_killed(tmp_path):
    argv = ["run", "quick", "--set", "size=0,1,2,3,4,5,6", "--jobs", "2", "--json"]
    runs = EXPERIMENT.runs({"size": "0,1,2,3,4,5,6"})
    killed = weft(tmp_path, *argv, pause_s=0.3)
    wait_until(lambda: len(measurements(tmp_path)) >= 2)
    other = weft(tmp_path, *argv, pause_s=0.01)
    wait_until(lambda: len(measurements(tmp_path)) >= 5)
    killed.kill()
    killed.communicate()
    out, err = other.communicate()
    assert other.returncode == 0, err
    assert [row["run"] for row in json.loads(out)] == [run.id for run in runs]
    assert set(measurements(tmp_path)) == {run.id for run in runs}
    assert len(measurements(tmp_path)) <= len(runs) + 2  # the two runs that the killed one was at


def test_what_is_stored_by_another_meanwhile_is_told_of_and_not_measured(store):
    runs = EXPERIMENT.runs({"size": "1"}, seeds=1)
    store.put(runs[0], quick.measure(runs[0]), {}, 0.25)
    watcher = Watcher()
    assert carry_out(runs, store, watcher=watcher).measured == runs[1:]
    assert watcher.seen == [(run, None) for run in runs]
    assert carry_out(runs, store, again=True).measured == runs


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_sweep_ends_where_its_results_cannot_be_stored(store, monkeypatch, jobs):
    runs = EXPERIMENT.runs()
    put = Store.put

    def full(self, run, *others):
        if run == runs[3]:
            raise OSError("database or disk is full")
        put(self, run, *others)

    monkeypatch.setattr(Store, "put", full)
    with pytest.raises(OSError, match="disk is full"):
        carry_out(runs, store, jobs=jobs)
    assert 2 <= len(store.rows(runs)) <= 4
    assert store.claim(runs[3]) is RunClaim.OURS  # nothing of the sweep is claimed any more


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_after_ctrl_c_what_is_done_is_kept_and_nothing_left_behind(tmp_path, jobs):
    process = weft(tmp_path, "run", "quick", "--seeds", "50", "--jobs", jobs, pause_s=0.05)
    wait_until(lambda: len(stored_ids(tmp_path)) >= 2)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to every process
    out, err = process.communicate()
    assert (process.returncode, out) == (130, ""), err
    assert err.splitlines()[-1] == "weft: interrupted"
    assert "Traceback" not in err
    assert has_ended(process.pid)
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["results.sqlite"]
    assert len(stored_ids(tmp_path)) >= 2
