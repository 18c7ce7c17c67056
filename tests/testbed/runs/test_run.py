"""Names, slots and locks of runs, in a directory of the test's own."""

from __future__ import annotations

import os
import re

import pytest

from weft.testbed.runs import run


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.delenv("WEFT_RUN", raising=False)
    monkeypatch.setattr(run, "DIRECTORY", tmp_path)
    return tmp_path


def test_a_run_lives_as_long_as_somebody_keeps_it():
    kept, other = run.reserve("demo"), run.reserve(None)
    assert re.fullmatch(r"[0-9a-f]{4}", other.run.id)
    assert kept.run.alive()
    assert run.find("demo") == kept.run
    assert run.dead_runs() == []
    kept.release()
    assert not kept.run.alive()
    assert run.dead_runs() == [kept.run]
    assert run.find(None) == other.run
    kept.run.forget()
    assert run.runs() == [other.run]
    other.release()


def test_a_person_says_by_the_environment_which_run_is_meant(monkeypatch):
    kept, other = run.reserve("a"), run.reserve("b")
    with pytest.raises(ValueError, match="several runs are up"):
        run.find(None)
    monkeypatch.setenv("WEFT_RUN", "b")
    assert (run.find(None), run.find("a")) == (other.run, kept.run)
    monkeypatch.setenv("WEFT_RUN", "c")
    with pytest.raises(ValueError, match="no run 'c' is up"):
        run.find(None)
    kept.release()
    other.release()


def test_a_slot_is_free_when_its_run_has_been_removed_and_not_when_it_has_died():
    first, second = run.reserve("a"), run.reserve("b")
    assert (first.run.slot, second.run.slot) == (1, 2)
    first.release()
    third = run.reserve("c")
    assert third.run.slot == 3
    first.run.forget()
    assert run.reserve("d").run.slot == 1
    second.release()
    third.release()


def test_a_run_that_died_before_its_journal_was_whole_has_made_nothing(directory):
    (directory / "half").mkdir()
    (directory / "half" / "run.json.new").write_text('{"id": "ha')
    (dead,) = run.dead_runs()
    assert (dead.id, dead.slot, dead.journal_or_empty()) == ("half", 0, {})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Demo", "run name 'Demo': up to 16 of a-z, 0-9 and -, such as demo"),
        ("a/../b", "up to 16 of"),
        ("x" * 17, "up to 16 of"),
    ],
)
def test_a_wrong_name_is_one_clear_line(name, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        run.reserve(name)


def test_a_name_is_taken_by_the_living_and_by_the_dead():
    kept = run.reserve("demo")
    with pytest.raises(ValueError, match="a run called demo is up"):
        run.reserve("demo")
    kept.release()
    with pytest.raises(
        ValueError, match="a run called demo has died; `weft clean` removes what it left"
    ):
        run.reserve("demo")
    with pytest.raises(ValueError, match="run demo is dead; `weft clean` removes what it left"):
        run.find("demo")
    left = "dead: demo; `weft clean` removes what is left"
    with pytest.raises(ValueError, match=f"no run is up; start one with `weft up` \\({left}\\)$"):
        run.find(None)
    assert run.left_behind(run.runs()) == left
    other = run.reserve("other")
    assert run.left_behind([other.run]) == ""
    other.release()


def test_a_journal_is_on_the_disk_before_it_has_its_name(directory, monkeypatch):
    """Or a machine that loses power is left with things that no journal names."""
    kept, steps = run.reserve(None), []
    for name in ("fsync", "replace"):
        work = getattr(os, name)
        step = lambda *given, work=work, name=name: (steps.append(name), work(*given))  # noqa: E731
        monkeypatch.setattr(os, name, step)
    run.write_journal(kept.run, {"id": kept.run.id, "slot": kept.run.slot, "namespaces": ["n"]})
    assert steps == ["fsync", "replace"]
    kept.release()
