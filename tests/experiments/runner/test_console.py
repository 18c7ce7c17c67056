"""Progress of one long piece of work: its stages, and when it ends."""

from __future__ import annotations

import io
import json

import pytest
from quick import EXPERIMENT

from weft.experiments.cli.virtual_up import boot_progress
from weft.experiments.runner import console
from weft.experiments.runner.results import RunFailure
from weft.testbed.linux import clock
from weft.testbed.linux.clock import wait_until


@pytest.fixture
def times(tmp_path, monkeypatch):
    path = tmp_path / "private" / "times.json"
    monkeypatch.setattr(console, "_file", lambda: path)
    monkeypatch.setattr(console, "QUIET_S", 0.02)
    return path


def test_a_name_of_a_file_moves_no_cursor(capsys):
    console.say("weft: \x1b[31m is left out: 5 \xb5s")
    assert capsys.readouterr().err == "weft: \\x1b[31m is left out: 5 \xb5s\n"


@pytest.fixture
def lines(monkeypatch):
    lines = []
    monkeypatch.setattr(console, "say", lines.append)
    return lines


def test_a_stage_that_goes_on_is_reported_and_how_long_it_took_last(times, lines):
    with console.stages("checking", "check star") as tell:
        tell("a kernel boots")
        wait_until("the stage is reported", lambda: lines)
    assert lines == ["checking: a kernel boots"]
    console.remember("check star", 100.0)
    with console.stages("checking", "check star") as tell:
        tell("a kernel boots")
        wait_until("the stage is reported", lambda: len(lines) > 1)
    assert lines[1].startswith("checking: a kernel boots, about ")
    assert lines[1].endswith("left")


def test_the_time_of_what_failed_is_not_kept(times, lines):
    with pytest.raises(OSError, match="no"), console.stages("checking", "check star"):
        raise OSError("no")
    assert console.usual_s("check star") is None
    with console.stages("checking", "check star"):
        pass
    assert console.usual_s("check star") is not None


def test_no_thread_and_no_time_under_a_virtual_clock_or_without_a_name(times, lines, monkeypatch):
    started = []
    monkeypatch.setattr(console.Timer, "start", lambda timer: started.append(timer))
    with console.stages("simulating") as tell:
        tell("half")
    monkeypatch.setattr(clock, "is_virtual", lambda: True)
    with console.stages("bringing up", "up star") as tell:
        tell("links")
    assert started == []
    assert not times.exists()


def test_work_that_ended_in_time_says_nothing(times, lines, monkeypatch):
    monkeypatch.setattr(console, "QUIET_S", 60.0)
    with console.stages("checking", "check star") as tell:
        tell("a kernel boots")
    assert lines == []


@pytest.mark.parametrize("runs", [1, 2])
def test_a_failure_is_told_at_once_unless_it_is_that_of_the_only_run(lines, runs):
    (run,) = EXPERIMENT.runs({"size": "1", "scheme": "dr"}, seeds=1)
    with console.Bar("quick", runs, ticking=False) as bar:
        bar.ended(run, RunFailure("no", ""))
    failures = [line for line in lines if "failed" in line]
    assert failures == ([f"quick: {run} failed: no"] if runs > 1 else [])


def test_only_the_newest_times_are_kept(times, monkeypatch):
    monkeypatch.setattr(console, "MOST_ENTRIES", 2)
    for work in ("a", "b", "a", "c"):
        console.remember(work, 1.0)
    assert json.loads(times.read_text()) == {"a": 1.0, "c": 1.0}
    times.write_text("[1")
    assert console.usual_s("a") is None


def test_a_boot_ends_with_the_first_output(times, lines, monkeypatch):
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO()))
    with boot_progress("boot star") as (stdout, _):
        assert console.usual_s("boot star") is None
        stdout.write(b"mininet> ")
        assert console.usual_s("boot star") is not None
        stdout.write(b"more")
        assert stdout.stream.getvalue() == b"mininet> more"
