import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from quick import EXPERIMENT

from weft.experiments.runner import definition, virtual_runs
from weft.experiments.runner import sweep as sweeps
from weft.experiments.runner.definition import Result, find
from weft.experiments.runner.results import RunFailure, Store
from weft.experiments.runner.sweep import on_cluster, sweep
from weft.testbed.linux.clock import wait_until

distributed = pytest.importorskip("distributed", reason="no dask.distributed")
HERE = Path(__file__).parent
EXPERIMENTS = HERE.parent / "runner"  # where quick is


class Watcher:
    def __init__(self):
        self.seen = []

    def ended(self, run, failure, *seconds):
        self.seen.append(run)


# What the workers run first: they know the quick experiment beside those of the project.
SETUP = """
from weft.experiments.runner import definition, sweep
import quick
sweep.find = lambda name: quick.EXPERIMENT if name == "quick" else definition.find(name)
"""


@contextmanager
def worker(address, **environment):
    """A worker's process, killed in the end."""
    command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-dashboard"]
    command += ["--no-nanny", "--nthreads", "2", "--preload", SETUP]
    with subprocess.Popen(
        command, stderr=subprocess.DEVNULL, env=os.environ | environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def address():
    """A scheduler and two workers on loopback, each a process of its own."""
    paths = [str(HERE.parents[2]), str(EXPERIMENTS), os.environ.get("PYTHONPATH", "")]
    with (
        distributed.LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address=":0") as cluster,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        with ExitStack() as workers:
            for _ in range(2):
                workers.enter_context(worker(cluster.scheduler_address))
            with distributed.Client(cluster.scheduler_address, set_as_default=False) as client:
                client.wait_for_workers(2, timeout=60)
            yield cluster.scheduler_address


def carry_out(runs, store, address=1):
    watcher, about = Watcher(), {"commit": None, "dirty": False}
    swept = sweep(EXPERIMENT, runs, store, workers=address, about=about, watcher=watcher)
    assert sorted(watcher.seen, key=str) == sorted(runs, key=str)  # each once
    assert set(swept.measured) | set(swept.failures) == set(runs)
    return swept.failures


def test_a_cluster_gives_the_rows_that_one_process_gives(tmp_path, address):
    runs = EXPERIMENT.runs({"size": "1,2,3"}, seeds=3)
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    assert carry_out(runs, here) == {}
    failures = carry_out(runs, there, address)
    assert failures == {}
    assert there.rows(runs) == here.rows(runs)
    assert there.states("quick") == {run.id: "done" for run in runs}
    assert there.provenance(runs[0])["machine"]
    assert there.provenance(runs[0])["seen"] == "here"


def test_a_worker_that_is_killed_costs_no_run_and_doubles_none(tmp_path, address, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE.parents[2]), str(EXPERIMENTS)]))
    runs = EXPERIMENT.runs({"size": "1,2,3,4"}, seeds=10)
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    carry_out(runs, here)
    begun = tmp_path / "begun"
    with (
        worker(address, WEFT_TEST_LOG=str(begun), WEFT_TEST_PAUSE_S="1000") as victim,
        distributed.Client(address, set_as_default=False) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        client.wait_for_workers(3, timeout=60)
        swept = pool.submit(carry_out, runs, there, address)
        wait_until("the third worker has a run", begun.exists, timeout_s=60)
        victim.kill()
        assert swept.result(timeout=60) == {}
    assert there.rows(runs) == here.rows(runs)
    assert there.states("quick") == {run.id: "done" for run in runs}


@pytest.mark.slow
def test_the_graph_engine_gives_the_same_on_a_cluster(tmp_path, address):
    experiment = definition.find("hop_length")
    runs = experiment.runs(
        {"topology": "dcell:n=3,k=2,ficonn:n=4,k=2", "routing": "dr,pr-gpi", "pairs": "1000"},
        seeds=1,
    )
    store = Store(tmp_path)
    failures = carry_out(runs, store, address)
    assert failures == {}
    for run, row in zip(runs, store.rows(runs), strict=True):
        assert row["mean_hops"] == experiment.measure(run).figures["mean_hops"]


def test_a_run_that_fails_there_does_not_end_the_sweep(tmp_path, address):
    runs = EXPERIMENT.runs({"scheme": "dr,broken,bfs", "size": "1"}, seeds=1)
    store = Store(tmp_path)
    failures = carry_out(runs, store, address)
    assert {run: failure.reason for run, failure in failures.items()} == {
        runs[1]: "RuntimeError: the reason"
    }
    assert "in measure" in store.failures("quick")[runs[1].id].traceback


def test_runs_on_the_kernel_stay_here(tmp_path, address, monkeypatch):
    log = tmp_path / "log"
    monkeypatch.setenv("WEFT_TEST_LOG", str(log))  # which the workers do not have
    runs = EXPERIMENT.runs({"size": "1"}, seeds=1, engines=["graph", "kernel"])
    carry_out(runs, Store(tmp_path / "results"), address)
    assert set(log.read_text().split()) == {run.id for run in runs if run.engine == "kernel"}


def test_a_virtual_clock_is_one_on_a_worker_too(monkeypatch):
    """A kernel of its own measures the run, not the worker's."""
    (run, *_) = find("link_loss").plan(clock="virtual").runs
    parameters = virtual_runs.VirtualRunResult(
        Result(figures={"lost_pairs": 1}), {"kernel": "weft"}
    )
    monkeypatch.setattr(virtual_runs, "measure", lambda asked, core: asked == run and parameters)
    answer = sweeps.answer(run)
    assert answer.outcome == parameters.outcome
    assert answer.about["inside"] == {"kernel": "weft"}


def test_a_worker_predicts_what_it_has_measured(monkeypatch):
    experiment = replace(EXPERIMENT, predict=lambda run: {"model_bytes": run.integer("size")})
    monkeypatch.setattr(sweeps, "find", lambda name: experiment)
    (run,) = experiment.runs({"size": "3", "scheme": "dr"}, seeds=1)
    figures = sweeps.answer(run).outcome.figures
    assert [*figures] == ["area_bytes", "delays_us", "right", "model_bytes"]
    assert (figures["area_bytes"], figures["model_bytes"]) == (9, 3)


def test_another_version_of_the_experiment_is_refused(address):
    run = EXPERIMENT.runs(seeds=1)[0]
    newer = definition.Run(**{**run.content, "version": 2})
    (answer,) = on_cluster(address, [newer])
    assert answer.outcome == RunFailure("ValueError: quick is version 1 on the worker, 2 here", "")


def test_no_scheduler_no_workers_and_no_dask_are_said_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("weft.experiments.runner.sweep.CONNECT_S", 0.3)
    with pytest.raises(OSError, match=r"127\.0\.0\.1:9"):
        next(on_cluster("tcp://127.0.0.1:9", EXPERIMENT.runs()))
    with (
        distributed.LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address=":0") as empty,
        pytest.raises(ValueError, match=r"has no workers: dask worker tcp://.* starts one"),
    ):
        next(on_cluster(empty.scheduler_address, EXPERIMENT.runs()))
    with pytest.raises(ValueError, match="missing port number in address 'here'"):
        next(on_cluster("here", EXPERIMENT.runs()))
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(
        ValueError,
        match=r"--scheduler needs dask.distributed: pip install 'weft-testbed\[cluster\]'",
    ):
        next(on_cluster("tcp://127.0.0.1:9", EXPERIMENT.runs()))


def test_dask_is_not_imported_unless_it_is_asked_for():
    runner = "weft.experiments.cli.run_commands, weft.experiments.runner.sweep"
    modules = f"import sys, {runner}; print(*sys.modules)"
    command = [sys.executable, "-c", modules]
    loaded = subprocess.run(
        command, cwd=HERE.parents[2], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "weft.experiments.runner.sweep" in loaded
    assert not {"distributed", "dask", "numba"} & set(loaded)
