"""Labs that grade themselves: those of labs/ with and without their answers, and their reports."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from weft.experiments.cli.cli import main
from weft.testbed.measure.fidelity import ORDER
from weft.testbed.runs import run

ROOT = Path(__file__).parents[3]
LABS = (
    *("shortest_paths", "hellos", "ecmp_spraying", "polarisation"),
    *("incast", "spraying_trimming", "own_scheme"),
)
WEFT = [sys.executable, "-m", "weft.experiments.cli.cli"]
PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
SMALL = """
topology: star:n=2
scheme: static
link: {rate: 10mbit}
answer: {scheme: any, link: {trim: any}}
events:
  - {at: 200ms, traffic: h0-h1, size: 20kB}
  - {at: 300ms, start: "echo up; sleep 100", node: h1, name: server}
  - {at: 1s, fail: h1-r0}
  - {at: 1s, stop: server}
checks:
  - {at: 100ms, reachable: all, points: 2}
  - {goodput: h0-h1, above: 1mbit}
  - {at: 600ms, output: "pgrep -x sleep | wc -l", node: h1, matches: "^[1-9]"}
  - {at: 2s, unreachable: h0-h1}
  - {at: 2s, route: h0-h1, via: h1, points: 3, hint: "Look at h0."}
"""


def weft(*words, timeout=None, **environment):
    return subprocess.run(
        [*WEFT, *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
        timeout=timeout,
    )


@pytest.mark.virtual
@pytest.mark.parametrize("name", LABS)
def test_a_lab_fails_without_its_answer_and_passes_with_it(name, tmp_path):
    folder, answers = tmp_path / name, tmp_path / "answers"
    shutil.copytree(ROOT / "labs" / name, folder)
    shutil.copytree(ROOT / "labs" / "answers" / name, answers)
    environment = {}
    if (answers / "pyproject.toml").exists():
        target = folder / "installed"
        pip = [*PIP, "--no-build-isolation", "--target", target, answers]
        subprocess.run(pip, check=True)
        environment = {"PYTHONPATH": str(target)}
    words = ["check", folder / "lab.yaml", "--trust", "--json"]
    if (answers / "hidden.yaml").exists():
        words += ["--hidden", answers / "hidden.yaml"]
    without = weft(*words, **environment)
    assert without.returncode == 1, without.stderr
    report = json.loads(without.stdout)
    failed = [row for row in report["checks"] if not row["passed"]]
    assert all(row["hint"] for row in failed)
    assert 0 < report["points"] < report["of"]
    answered = weft(*words, "--answer", answers / "answer.yaml", **environment)
    assert answered.returncode == 0, answered.stdout + answered.stderr
    report = json.loads(answered.stdout)
    assert report["points"] == report["of"] > 0
    assert report["late_ms"] < 1


@pytest.mark.kernel
def test_a_lab_is_checked_in_real_time_and_leaves_nothing(tmp_path):
    file, junit = tmp_path / "lab.yaml", tmp_path / "junit.xml"
    file.write_text(SMALL)
    done = weft("check", file, "--clock", "real", "--trust", "--junit", junit)
    assert done.returncode == 1, done.stderr
    assert "5 of 8 points" in done.stdout, done.stdout
    assert "hint: Look at h0." in done.stdout
    suite = ElementTree.parse(junit).getroot()
    assert suite.attrib == {"name": str(file), "tests": "5", "failures": "1"}
    (failure,) = suite.iter("failure")
    assert (failure.attrib["message"], failure.text) == ("r0", "Look at h0.")
    journals = [record.journal_or_empty() for record in run.runs()]
    assert not [journal for journal in journals if str(file) in journal.get("command", ())]


LONG = """
topology: star:n=2
scheme: static
link: {rate: 10mbit}
events:
  - {at: 0s, traffic: h0-h1, for: 600s}
  - {at: 0s, degrade: h0-r0, rate: 9mbit, tell: true}
checks:
  - {at: 0s, loss: h0-h1, for: 600s, below: 9}
"""
WRONG = """
topology: star:n=2
scheme: static
link: {rate: 10mbit}
events:
  - {at: 0s, traffic: h0-h1, for: 1s, congestion: nosuch}
  - {at: 0s, start: "while echo up; do sleep 0.01; done", node: h1}
checks:
  - {at: 100ms, output: "sleep 0.2; echo down", node: h1, matches: up}
"""


HONEST = """
topology: star:n=2
scheme: static
link: {rate: 10mbit}
answer: {commands: any}
checks:
  - {at: 0s, unreachable: h0-h1, points: 100, hint: "No answer can."}
"""


FORGE = r"""
report=$(printf '[0.0, [[true, "%s"]]]' "$(cat {secret})")
for process in 1 $(pgrep -f ' check '); do
  ways="$ways /proc/$process/fd/9"
done
for way in /run/uml/channels/report /run/uml/report /dev/fd/9 $ways; do
  printf '%s' "$report" >>$way && break  # a second one would be malformed
done
"""
AT_ONCE = """
for way in /run/uml/channels/status /run/uml/status /dev/fd/5 /proc/1/fd/5; do
  echo 0 >>$way && break
done
echo o >/proc/sysrq-trigger
sleep 100
"""


@pytest.mark.virtual
@pytest.mark.parametrize("end", [AT_ONCE, "true"])
def test_commands_of_an_answer_write_no_report_and_read_no_secret(end, tmp_path):
    """An answer forges a report with a file of the teacher in it.

    The lab allows the answer commands, as no lab of labs/ does.
    """
    file, answer, secret = (tmp_path / name for name in ("lab/l.yaml", "a.yaml", "own/secret"))
    for path in (file, secret):
        path.parent.mkdir(mode=0o700)
    secret.write_text("the teacher's")
    file.write_text(HONEST)
    answer.write_text(json.dumps({"commands": {"h0": [FORGE.format(secret=secret) + end]}}))
    done = weft("check", file, "--answer", answer, "--trust", "--json")
    assert done.returncode == 1, done
    assert "teacher" not in done.stdout + done.stderr, done
    if done.stdout:  # there is no report either if the answer has spoilt it
        assert json.loads(done.stdout)["points"] == 0


@pytest.mark.virtual
def test_answers_of_a_folder_are_played_with_hidden_checks(tmp_path):
    file, hidden, answers = (tmp_path / name for name in ("lab.yaml", "hidden.yaml", "answers"))
    answers.mkdir()
    file.write_text(HONEST.replace("answer: {", "answer: {scheme: any, "))
    hidden.write_text("checks: [{at: 0s, reachable: h0-h1, points: 7}]")
    (answers / "a.yaml").write_text("scheme: none")
    (answers / "b.yaml").write_text(json.dumps({"commands": {"h0": ["echo too bad; exit 3"]}}))
    (answers / "c.yaml").write_text("scheme: static")
    done = weft("check", file, "--answers", answers, "--hidden", hidden, "--json", "--trust")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["points"] for row in rows] == [100, 0, 7]
    assert rows[1]["error"].endswith("status 3: too bad")


@pytest.mark.virtual
def test_what_a_command_says_reaches_the_terminal_without_control_characters(tmp_path):
    file, answer = tmp_path / "lab.yaml", tmp_path / "answer.yaml"
    file.write_text(HONEST)
    answer.write_text(json.dumps({"commands": {"h0": [r"printf '1\n\033]0;PWNED\007'; exit 3"]}}))
    done = weft("check", file, "--answer", answer, "--trust")
    assert done.returncode == 1
    assert r"status 3: \x1b]0;PWNED\x07" in done.stderr
    assert not {"\x1b", "\x07"} & set(done.stdout + done.stderr)


@pytest.mark.kernel
def test_an_output_is_that_of_its_command_and_impossible_traffic_is_an_error(tmp_path):
    file = tmp_path / "lab.yaml"
    file.write_text(WRONG)
    wrong = weft("check", file, "--clock", "real", "--trust")
    assert wrong.returncode == 2
    line = "weft: traffic h0-h1: this kernel has no congestion control nosuch"
    assert wrong.stderr.splitlines()[-1].startswith(line)
    file.write_text(WRONG.replace(", congestion: nosuch", ""))
    right = weft("check", file, "--clock", "real", "--trust", "--json")
    assert json.loads(right.stdout)["fidelity"] in ORDER
    (row,) = json.loads(right.stdout)["checks"]
    assert (row["passed"], row["measured"]) == (False, "down")


@pytest.mark.kernel
def test_an_impossible_event_ends_a_lab_at_once(tmp_path):
    file = tmp_path / "lab.yaml"
    file.write_text(LONG)
    wrong = weft("check", file, "--clock", "real", "--trust", timeout=120)
    assert wrong.returncode == 2
    assert wrong.stderr.splitlines()[-1].startswith("weft: scheme static treats degraded links")


def test_a_report_that_cannot_be_written_is_refused_before_anything_is_made(tmp_path, capsys):
    file = tmp_path / "lab.yaml"
    file.write_text(LONG)
    assert main(["check", str(file), "--junit", str(tmp_path / "none" / "x.xml")]) == 2
    assert "x.xml: No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "words", "message"),
    [
        ("", [], "this lab runs 2 commands as root: read the file, then add --trust"),
        ("scheme: nosuch", ["--trust"], "answer.yaml:1: no scheme 'nosuch'"),
        ("scheme: nosuch", ["--trust", "--clock", "real"], "answer.yaml:1: no scheme 'nosuch'"),
        ("\nscheme: 7", [], "answer.yaml:2: scheme: a text, got 7"),
        ("checks: []", [], "answer.yaml:1: no key 'checks': "),
        ("link: {trim: 5}", ["--trust"], "static leaves packets to the kernel, which trims none"),
    ],
)
def test_a_lab_is_refused_before_anything_is_made(change, words, message, tmp_path, capsys):
    file, answer = tmp_path / "lab.yaml", tmp_path / "answer.yaml"
    file.write_text(SMALL)
    answer.write_text(change)
    if change:
        words = [*words, "--answer", str(answer)]
    assert main(["check", str(file), *words]) == 2
    assert message in capsys.readouterr().err


def test_a_lab_without_checks_or_rates_is_refused(tmp_path, capsys):
    file = tmp_path / "lab.yaml"
    file.write_text("topology: star:n=2")
    assert main(["check", str(file)]) == 2
    assert "it has no checks" in capsys.readouterr().err
    file.write_text("topology: star:n=2\nchecks: [{reachable: all}]")
    assert main(["check", str(file)]) == 2
    assert "h0-r0 has no rate" in capsys.readouterr().err


def test_what_is_no_answer_is_named_and_read_by_nobody(tmp_path):
    """A pipe would be waited for, and a name may be a formula to a spreadsheet."""
    (tmp_path / "lab.yaml").write_text(SMALL)
    answers = tmp_path / "answers"
    answers.mkdir()
    os.mkfifo(answers / "pipe.yaml")
    for name in ("=1+1.yaml", "B.YAML", "c.yaml.txt"):
        (answers / name).write_text("rate: 1mbit")
    done = subprocess.run(
        [*WEFT, "check", tmp_path / "lab.yaml", "--answers", ".", "--csv", "--trust"],
        cwd=answers,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=100,
    )
    rows = [line.split(",")[0] for line in done.stdout.splitlines()]
    assert rows == ["answer", "./=1+1.yaml", "B.YAML"]
    assert done.stderr.splitlines()[:2] == [
        f"weft: {name}: not graded, because it is no .yaml file"
        for name in ("c.yaml.txt", "pipe.yaml")
    ]


@pytest.mark.virtual
def test_an_answer_that_does_not_end_is_given_up(tmp_path):
    (tmp_path / "lab.yaml").write_text(SMALL)
    done = weft("check", tmp_path / "lab.yaml", "--trust", "--timeout-s", "0.5")
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if line.startswith("weft: ")]
    assert lines == [f"weft: {tmp_path}/lab.yaml: given up after 0.5 s; --timeout-s S waits longer"]
