"""Runs under the virtual clock: part of a run's identity, repeatable, and no business of root's."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.optional_parts import with_and_without
from weft.experiments.cli.cli import main
from weft.experiments.runner import sweep, virtual_runs
from weft.experiments.runner.definition import COSTS, Result, Run, find
from weft.experiments.runner.rows import row_of
from weft.experiments.ttc import ttc_kernel
from weft.testbed.uml import uml

ROOT = Path(__file__).parents[3]
RUN = Run(experiment="link_loss", version=1, parameters={}, seed=3, engine="kernel")


def test_the_clock_is_part_of_a_run_and_changes_no_id_of_before():
    virtual = Run(**{**RUN.content, "clock": "virtual"})
    assert "clock" not in RUN.content
    assert virtual.id != RUN.id
    assert Run(**virtual.content) == virtual
    assert str(virtual) == f"{RUN} clock=virtual"


def test_only_the_kernel_engine_has_a_clock():
    experiment = find("link_loss")
    assert {run.engine for run in experiment.plan(clock="virtual").runs} == {"kernel"}
    with pytest.raises(
        ValueError, match="the clock is virtual on the engine kernel only, not on fabric"
    ):
        experiment.plan(engines=["fabric"], clock="virtual")
    with pytest.raises(
        ValueError, match="the clock is virtual on the engine kernel only, not on graph"
    ):
        find("hop_length").plan(clock="virtual")


def test_a_clock_is_of_the_runs_on_the_kernel_alone():
    plan = find("link_loss").plan(engines=["kernel", "graph"], clock="virtual", hop_ns=5)
    clocks = {(run.engine, run.clock, run.hop_ns) for run in plan.runs}
    assert clocks == {("kernel", "virtual", 5), ("graph", "real", 0)}


@with_and_without("virtual")
def test_a_kernel_experiment_is_exact_by_default_where_there_is_a_kernel_for_it(
    part, tmp_path, capsys
):
    best = "virtual" if part else "real"
    assert virtual_runs.default_clock(find("one_failure"), []) == best
    assert virtual_runs.default_clock(find("one_failure"), ["kernel"]) == best
    assert virtual_runs.default_clock(find("first_light"), []) == "real"
    assert virtual_runs.default_clock(find("dar_table"), []) == "real"
    assert virtual_runs.default_clock(find("dar_table"), ["graph", "kernel"]) == best
    assert main(["run", "one_failure", "--dry-run", "--results", str(tmp_path)]) == 0
    advice = "one_failure: in real time; `make uml-kernel` builds a kernel for exact time"
    assert (advice in capsys.readouterr().err) == (not part)


@with_and_without("virtual")
def test_where_the_kernel_is_missing_advice_comes_after_a_refusal(
    part, tmp_path, capsys, monkeypatch
):
    """Whatever is refused is the only line: a value, and a user without root."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    argv = ["run", "one_failure", "--results", str(tmp_path)]
    assert main([*argv, "--set", "topology=dcell:n=0,k=1"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main([*argv, "--clock", "real"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("weft: one_failure: the kernel engine needs root; ")
    assert line.endswith("--clock virtual needs no root (make uml-kernel)")


@with_and_without("virtual")
def test_runs_that_need_the_kernel_are_left_out_of_a_reproduction(part, tmp_path, capsys):
    argv = ["reproduce", "ttc_kernel", "--dry-run", "--results", str(tmp_path / "results")]
    assert main(argv) == 0
    left_out = "are left out that need the kernel for virtual time (make uml-kernel)"
    assert (left_out in capsys.readouterr().err) == (not part)


def test_runs_in_real_time_keep_the_machine_to_themselves():
    assert sweep.timed(RUN)
    assert not sweep.timed(Run(**{**RUN.content, "clock": "virtual"}))


def test_a_row_tells_its_clock():
    virtual = Run(**{**RUN.content, "clock": "virtual"})
    row = row_of(virtual, Result(figures={"lost": 0}, virtual_s=1.5))
    assert (row["clock"], row["virtual_s"]) == ("virtual", 1.5)
    assert "virtual_s" not in row_of(RUN, Result(figures={"lost": 0}))


@pytest.mark.parametrize("cost", COSTS)
def test_what_computing_costs_is_part_of_a_run(cost):
    runs = find("link_loss").plan(clock="virtual", **{cost: 500}).runs
    assert {getattr(run, cost) for run in runs} == {500}
    plain = replace(runs[0], **{cost: 0})
    assert runs[0].id != plain.id
    assert cost not in plain.content
    assert row_of(runs[0], Result(figures={"lost": 0}))[cost] == 500
    assert cost not in row_of(plain, Result(figures={"lost": 0}))


@pytest.mark.parametrize("option", ["--hop-ns", "--syscall-ns"])
def test_computing_costs_nothing_that_can_be_chosen_in_real_time(option, tmp_path, capsys):
    real = ["--clock", "real", "--results", str(tmp_path)]
    assert main(["run", "link_loss", option, "500", *real]) == 2
    assert f"{option} needs --clock virtual" in capsys.readouterr().err
    assert (
        main(["run", "link_loss", option, "-1", "--clock", "virtual", "--results", str(tmp_path)])
        == 2
    )
    assert f"{option} must be 0 .. 1000000000, got -1" in capsys.readouterr().err


def weft(*argv: str, results: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "weft.experiments.cli.cli", *argv, "--results", str(results)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.virtual
def test_two_runs_give_the_same_row(tmp_path):
    cell = (
        "run",
        "link_loss",
        "--clock",
        "virtual",
        "--seeds",
        "1",
        "--json",
        "--check-determinism",
    )
    done = weft(*cell, "--set", "topology=dcell:n=3,k=1", "failed_links=1", results=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "measured once more, 1 runs gave the same rows" in done.stderr
    (row,) = json.loads(done.stdout)
    assert row["clock"] == "virtual"
    assert row["virtual_s"] > 0


MEASURE = """
import sys
sys.path.insert(0, sys.argv[1])
from weft.experiments.runner import virtual_runs
from weft.experiments.runner.definition import find
from weft.experiments.runner.rows import row_of, text_of
cell = {"topology": "clos:n=2,r=2,m=2", "traffic": "permutation", "scheme": "ecmp"}
options = cell | {"rate_mbps": "10", "seconds": "1"}
(run,) = find("fabric_gain").plan(options, seeds=1, clock="virtual").runs
print(text_of(row_of(run, virtual_runs.measure(run).outcome)))
"""
FOLDERS = ("weft", "topologies", "daemons", "testbed", "experiments")


def measure_in(checkout: Path) -> str:
    """Return the row of a run of the code in `checkout`."""
    command = [sys.executable, "-c", MEASURE, str(checkout)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.virtual
def test_a_checkout_elsewhere_gives_the_same_row(tmp_path):
    """The copy has no bytecode, and is mounted on its own, since it lies in /tmp."""
    for name in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=ignored)
    row = measure_in(ROOT)
    assert json.loads(row)["clock"] == "virtual"
    assert measure_in(tmp_path) == row


@pytest.mark.virtual
def test_an_error_inside_is_the_runs_outcome():
    run = Run(
        experiment="link_loss",
        version=1,
        parameters={"topology": "no such"},
        seed=0,
        engine="kernel",
    )
    answer = virtual_runs.measure(run)
    assert "no such" in answer.outcome.reason


@pytest.mark.virtual
def test_what_a_model_says_is_computed_outside(monkeypatch):
    inside, start = [], uml.run

    def run_and_look(argv, *, exchange, **options):
        status = start(argv, exchange=exchange, **options)
        inside.append(json.loads(exchange.report)["result"]["figures"])
        return status

    monkeypatch.setattr(uml, "run", run_and_look)
    cell = {
        "topology": "fattree:n=2,d=2",
        "scheme": "ttc",
        "traffic": "udp:load=50",
        "rate_mbps": "1000",
    }
    cell["seconds"] = "0.001"
    (run,) = find("ttc_kernel").plan(cell, seeds=1, clock="virtual").runs
    parameters, model = virtual_runs.measure(run).outcome, ttc_kernel.model(run)
    assert [name for name in parameters.figures if name.startswith("model_")] == [*model] != []
    assert parameters.figures == {**inside[0], **model}
    assert not inside[0].keys() & model.keys()
    assert parameters.virtual_s > 0


def test_determinism_is_a_virtual_clocks(tmp_path):
    done = weft("run", "link_loss", "--clock", "real", "--check-determinism", results=tmp_path)
    assert done.returncode == 2
    assert "--check-determinism needs --clock virtual" in done.stderr
