"""Grades for teachers: a folder of answers as one table, hidden checks, Gradescope's file."""

import csv
import io
import json
from xml.etree import ElementTree

import pytest

from weft.experiments.cli import check_commands
from weft.experiments.cli.cli import main
from weft.testbed.labs.judgement import CheckVerdict
from weft.testbed.labs.lab_file import NamedText, parse
from weft.testbed.labs.play import Played, report_of

LAB = """
topology: star:n=2
scheme: static
link: {rate: 10mbit, queue: 8}
answer: {scheme: any, link: {queue: 1..99}}
checks:
  - {at: 100ms, reachable: all, hint: "Is there a route?"}
"""
HIDDEN = """
events:
  - {at: 1s, fail: h1-r0}
checks:
  - {at: 2s, unreachable: h0-h1, points: 3, hint: "The link is down."}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "lab.yaml").write_text(LAB)
    (tmp_path / "hidden.yaml").write_text(HIDDEN)
    (tmp_path / "answers" / "bob").mkdir(parents=True)
    return tmp_path


def play(monkeypatch, verdict):
    """Have a lab played without a kernel: `verdict` of its lab is that on each check."""
    monkeypatch.setattr(
        check_commands,
        "_on_virtual_kernel",
        lambda lab, *_: Played((verdict(lab),) * len(lab.checks), 0.0),
    )


def queue_verdict(lab):
    """Judge that the queue has eight packets; other queues end a lab in three ways."""
    match lab.link.queue_packets:
        case 97:
            raise ChildProcessError("the kernel died")
        case 98:
            raise check_commands.FailedInside("weft: it does not converge", 1)
    return CheckVerdict(lab.link.queue_packets == 8, "measured")


def test_a_folder_of_answers_is_one_table_and_an_error_is_its_row(folder, monkeypatch, capsys):
    play(monkeypatch, queue_verdict)
    answers = folder / "answers"
    (answers / "alice.yaml").write_text("link: {queue: 8}")
    (answers / "bob" / "answer.yml").write_text("link: {queue: 9}")
    (answers / "carol.yaml").write_text("link: {queue: 100}")
    (answers / "dan.yaml").write_text("{{")
    (answers / "eve.yaml").symlink_to("/etc/passwd")
    (answers / "fay.yaml").write_bytes(b"\xff")
    (answers / "gil.yaml").write_text("link: {queue: 97}")
    (answers / "hal.yaml").write_text("link: {queue: 98}")
    (answers / "notes.txt").write_text("no answer")
    words = ["check", str(folder / "lab.yaml"), "--hidden", str(folder / "hidden.yaml")]
    assert main([*words, "--answers", str(answers), "--csv"]) == 1  # gil's kernel died
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    names = [row["answer"].removeprefix(f"{answers}/") for row in rows]
    assert names == [
        *("alice.yaml", "bob/answer.yml", "carol.yaml", "dan.yaml"),
        *("eve.yaml", "fay.yaml", "gil.yaml", "hal.yaml"),
    ]
    assert [row["points"] for row in rows] == ["4", "0", "0", "0", "0", "0", "", "0"]
    assert {row["of"] for row in rows} == {"4"}
    assert [row["passed"] for row in rows] == ["true"] + ["false"] * 7
    errors = [row["error"].removeprefix(f"{answers}/") for row in rows]
    expected = (
        "",
        "",
        "carol.yaml:1: link.queue: ",
        "dan.yaml:1: malformed YAML",
        "eve.yaml: a symbolic link is not read",
        "fay.yaml: it is not text",
        "the kernel died",
        "weft: it does not converge",
    )
    assert all(map(str.startswith, errors, expected)), errors
    assert errors[:2] == ["", ""]
    hidden = "2. hidden: at 2s, unreachable h0-h1"
    assert [row[hidden] for row in rows[:3]] == ["3", "0", ""]
    (answers / "gil.yaml").unlink()
    assert main([*words, "--answers", str(answers)]) == 0
    assert "alice.yaml" in capsys.readouterr().out
    assert main([*words, "--answers", str(answers), "--json"]) == 0
    assert [row["points"] for row in json.loads(capsys.readouterr().out)] == [4] + [0] * 6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--answers", "nowhere"], "nowhere: no such folder"),
        (["--answers", "answers"], "answers: no .yaml file in it"),
        (["--answers", "answers", "--junit", "x.xml"], "--junit is about one answer"),
        (["--answers", "answers", "--gradescope", "x.json"], "--gradescope is about one answer"),
        (["--csv"], "--csv needs --answers"),
        (["--hidden", "lab.yaml"], "lab.yaml:2: hidden checks: no key 'topology'"),
        (["--hidden", "nofile"], "nofile: No such file"),
    ],
)
def test_other_words_are_refused_in_one_line(words, message, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert main(["check", "lab.yaml", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"weft: {message}"), error
    assert error.count("\n") == 1


def test_gradescope_gets_each_check_and_shows_no_student_the_hidden_ones(
    folder, monkeypatch, capsys
):
    monkeypatch.chdir(folder)
    play(monkeypatch, queue_verdict)
    answer, results = folder / "answer.yaml", folder / "results.json"
    answer.write_text("link: {queue: 9}")
    words = ["check", "lab.yaml", "--answer", "answer.yaml", "--gradescope", "results.json"]
    assert main([*words, "--hidden", "hidden.yaml"]) == 1
    shown, hidden = json.loads(results.read_text())["tests"]
    assert shown == {
        "name": "at 100ms, reachable all",
        "score": 0,
        "max_score": 1,
        "status": "failed",
        "output": "measured\nIs there a route?",
        "output_format": "text",
        "visibility": "visible",
    }
    assert (hidden["visibility"], hidden["max_score"]) == ("hidden", 3)
    answer.write_text("link: {queue: 8}")
    assert main(words) == 0
    (test,) = json.loads(results.read_text())["tests"]
    assert (test["status"], test["score"], test["output"]) == ("passed", 1, "measured")


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [("mtu: 9", 2, "answer.yaml:1: mtu: "), ("link: {queue: 98}", 1, "weft: it does not conv")],
)
def test_gradescope_gets_the_reason_of_a_refused_answer(
    answer, status, reason, folder, monkeypatch
):
    monkeypatch.chdir(folder)
    play(monkeypatch, queue_verdict)
    (folder / "answer.yaml").write_text(answer)
    words = ["check", "lab.yaml", "--answer", "answer.yaml", "--gradescope", "results.json"]
    assert main(words) == status
    results = json.loads((folder / "results.json").read_text())
    assert results["score"] == 0
    assert results["output"].startswith(reason)


def test_a_fault_of_the_teacher_is_no_grade(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "answer.yaml").write_text("link: {queue: 8}")
    words = ["check", "lab.yaml", "--answer", "answer.yaml", "--gradescope", "results.json"]
    assert main([*words, "--hidden", "answer.yaml"]) == 2
    assert not (folder / "results.json").exists()
    play(monkeypatch, queue_verdict)
    (folder / "answer.yaml").write_text("link: {queue: 97}")
    assert main(words) == 1
    assert (folder / "results.json").read_text() == ""


def test_junit_and_the_table_name_hidden_checks(folder, tmp_path, capsys):
    lab = parse(LAB, name="lab.yaml", hidden=NamedText(HIDDEN, "hidden.yaml"))
    report = report_of(lab.checks, Played((CheckVerdict(False, "x"),) * 2, 0.0))
    assert [row["hidden"] for row in report["checks"]] == [False, True]
    check_commands.show_report(report)
    assert "\nhidden: at 2s, unreachable h0-h1\n  hint: " in capsys.readouterr().out
    check_commands.write_junit(tmp_path / "x.xml", "lab", report)
    suite = ElementTree.parse(tmp_path / "x.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "2")
    assert suite[1].get("name", "").startswith("line 5: hidden: at 2s")
    assert [failure.get("message") for case in suite for failure in case] == ["x", "x"]


def test_hidden_events_shift_no_check_of_the_lab():
    text = LAB.replace("  - {at: 100ms, ", "  - {")
    lab = parse(text, name="lab.yaml", hidden=NamedText(HIDDEN + "  - {reachable: all}", "h"))
    assert [check.at_s for check in lab.checks] == [0.0, 2.0, 1.0]
    wrong = NamedText(HIDDEN.replace("h1-r0", "h1-r7"), "hidden.yaml")
    with pytest.raises(ValueError, match=r"^hidden\.yaml:3: events, entry 1: fail: "):
        parse(LAB, name="lab.yaml", hidden=wrong)
