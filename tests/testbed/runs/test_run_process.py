"""Processes that watch a run: each end of one has a meaning of its own."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from weft.testbed.runs import run_process
from weft.testbed.runs.run import RunRecord

RUN = RunRecord("demo", 1, Path("/run/weft/demo"))


def end_of(line: str) -> int:
    """Return what wait() returns for a process that executes `line`."""
    return run_process.wait(subprocess.Popen(["sh", "-c", line]), RUN)


@pytest.mark.parametrize("alive", [False, True])
def test_a_process_has_its_own_status_unless_it_is_killed(
    alive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunRecord, "alive", lambda run: alive)
    assert [end_of(f"exit {status}") for status in (0, 3)] == [0, 3]
    with pytest.raises(BrokenPipeError):
        end_of("kill -PIPE $$")


def test_a_process_that_is_killed_has_ended_with_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunRecord, "alive", lambda run: False)
    assert end_of("kill -KILL $$") == 0


def test_a_process_that_is_killed_while_its_run_goes_on_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_process, "END_S", 0.01)
    monkeypatch.setattr(RunRecord, "alive", lambda run: True)
    with pytest.raises(OSError, match=r"watches run .* was killed$"):
        end_of("kill -KILL $$")


def test_a_process_that_still_imports_says_nothing_of_ctrl_c(
    capfd: pytest.CaptureFixture[str],
) -> None:
    process = run_process.start(RUN, run_process.__name__, [])  # a module that only imports
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
    assert (process.returncode, capfd.readouterr().err) == (0, "")
