"""The command that carries out a lab: check plays it and grades it.

Reports are as people and other programs read them: tables, JUnit XML, CSV, Gradescope.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from weft.experiments.cli.options import (
    SEED_HELP,
    Commands,
    add_command,
    add_flag,
    add_json,
    add_seed,
    add_trust,
    seconds,
)
from weft.experiments.runner.console import say, show, stages
from weft.testbed.linux.process import need_root

if TYPE_CHECKING:
    from weft.testbed.labs.lab_file import Lab, NamedText
    from weft.testbed.labs.play import Played, Report
    from weft.testbed.labs.timeline import LabCheck


# in the folder that the kernel for virtual time shares with the host
ANSWER, HIDDEN = "answer.yaml", "hidden.yaml"
REPORTING = "WEFT_REPORTING"  # environment variable of this command on that kernel
FORMULA = ("=", "+", "-", "@")  # first characters that a spreadsheet takes for a command
OF_ONE = ("junit", "gradescope")  # options that several answers do not have


class FailedInside(OSError):
    """A lab could not be played on its kernel, which has printed the reason: the message."""

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.status = status


def add_commands(commands: Commands) -> None:
    """Add this file's commands to the parser."""
    parser = add_command(
        commands, "check", check, "bring a lab up, play its events, and grade its checks"
    )
    parser.add_argument("lab", metavar="LAB", help="file such as lab.yaml (docs/labs.md)")
    answers = parser.add_mutually_exclusive_group()
    answers.add_argument(
        "--answer",
        metavar="FILE",
        help="file with values that the lab's key answer allows, such as scheme: ecmp",
    )
    answers.add_argument(
        "--answers",
        metavar="DIR",
        help="grade every .yaml file in this folder and in its folders, one after the other",
    )
    parser.add_argument(
        "--hidden", metavar="FILE", help="file with further events and checks, hidden from students"
    )
    parser.add_argument(
        "--clock",
        choices=["real", "virtual"],
        default="virtual",
        help="virtual: exact, needs no root, every link has a rate; default: virtual",
    )
    add_seed(parser, 1, SEED_HELP)
    parser.add_argument(
        "--timeout-s",
        metavar="S",
        type=seconds,
        default=600.0,
        help="time of this machine after which an answer is given up; default: 600 "
        "(--clock virtual)",
    )
    add_json(parser)
    add_flag(parser, "--csv", help="print the grades of --answers as CSV")
    parser.add_argument("--junit", metavar="FILE", help="write the results as JUnit XML")
    parser.add_argument(
        "--gradescope", metavar="FILE", help="write the results as Gradescope's results.json"
    )
    add_trust(parser)


def check(arguments: Namespace) -> int:
    """Grade a lab, or answers to it; return 1 if a check fails."""
    if REPORTING in os.environ:
        return _check_inside(arguments)
    if arguments.answers is not None:
        return _check_folder(arguments)
    if arguments.csv:
        raise ValueError("--csv needs --answers, a folder of answers")
    try:
        return _check_one(arguments)
    except FailedInside as failure:
        return failure.status


def _check_one(arguments: Namespace) -> int:
    """Grade a lab with at most one answer."""
    from weft.experiments.cli.lab_commands import require_trust

    _read(arguments, None)
    for name in OF_ONE:  # refuse the path now, and leave no older results there
        if getattr(arguments, name) is not None:
            Path(getattr(arguments, name)).write_bytes(b"")
    with _refusals(arguments):
        lab = _read(arguments, arguments.answer)
    require_trust(lab, trust=arguments.trust)
    with _refusals(arguments):
        report = _graded(arguments, lab, arguments.answer)
    if arguments.junit is not None:
        write_junit(Path(arguments.junit), arguments.lab, report)
    if arguments.gradescope is not None:
        write_gradescope(Path(arguments.gradescope), report)
    if arguments.json:
        print(json.dumps(report))
    else:
        show_report(report)
    return 0 if report["passed"] else 1


@contextmanager
def _refusals(arguments: Namespace) -> Iterator[None]:
    """Write the error of an answer for Gradescope, where it is the student who must read it."""
    try:
        yield
    except (ValueError, FailedInside, TimeoutError) as error:
        if arguments.gradescope is not None and arguments.answer is not None:
            refusal = json.dumps({"score": 0, "output": str(error)}, indent=1)
            Path(arguments.gradescope).write_text(refusal + "\n")
        raise


def _check_folder(arguments: Namespace) -> int:
    """Grade every answer of a folder; return 1 if one of them could not be graded."""
    from weft.experiments.cli.lab_commands import require_trust
    from weft.experiments.runner.rows import cell

    for name in OF_ONE:
        if getattr(arguments, name) is not None:
            raise ValueError(f"--{name} is about one answer: use --answer FILE")
    lab = _read(arguments, None)
    paths = _answers(Path(arguments.answers))
    require_trust(lab, trust=arguments.trust)
    columns = columns_of(lab.checks)
    table = csv.writer(sys.stdout, lineterminator="\n")
    if arguments.csv:
        table.writerow(columns)
    rows = []
    for path in paths:
        row = _row(arguments, lab, path)
        rows.append(row)
        if arguments.csv:  # at once, so that an interruption loses nothing
            table.writerow([cell(row.get(column)) for column in columns])
            sys.stdout.flush()
    if arguments.json:
        print(json.dumps(rows))
    elif not arguments.csv:
        show_grades(rows)
    return 1 if any(row["points"] is None for row in rows) else 0


def _answers(folder: Path) -> list[Path]:
    """Return the answers in a folder, and name what else is there; ValueError if there is none."""
    from weft.experiments.cli.lab_commands import SUFFIXES

    files = sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    paths = [
        path
        for path in files
        if path.suffix.lower() in SUFFIXES and (path.is_symlink() or path.is_file())
    ]
    for path in sorted({*files} - {*paths}):
        say(f"weft: {path}: not graded, because it is no .yaml file")
    if not paths:
        reason = "no .yaml file in it" if folder.is_dir() else "no such folder"
        raise ValueError(f"{folder}: {reason}; --answers takes a folder of answers")
    return paths


def _row(arguments: Namespace, lab: Lab, path: Path) -> Report:
    """Return the row of an answer; an error in it is its row, and ends nothing."""
    from weft.experiments.cli.lab_commands import require_trust

    name = str(path)
    if name.startswith(FORMULA):
        name = f"./{name}"
    try:
        if path.is_symlink():  # it may lead to a file of the teacher's
            raise ValueError(f"{path}: a symbolic link is not read")
        answered = _read(arguments, str(path))
        if answered.command_lines() != lab.command_lines():
            require_trust(answered, trust=arguments.trust)
        return grade_row(name, lab.checks, _graded(arguments, answered, str(path)))
    except (ValueError, FailedInside) as error:
        return error_row(name, lab.checks, error, 0)
    except OSError as error:
        return error_row(name, lab.checks, error, None)


def _graded(arguments: Namespace, lab: Lab, answer: str | None) -> Report:
    """Return the report on `lab`, which has the values of the file `answer`."""
    from weft.experiments.cli.lab_commands import checked_scheme
    from weft.experiments.cli.virtual_up import require_rates
    from weft.testbed.labs.play import report_of

    virtual = arguments.clock == "virtual"
    scheme = checked_scheme(lab, virtual=virtual)
    if virtual:
        require_rates(lab)
    title = "checking" if answer is None else f"checking {answer}"
    work = f"check {lab.topology.spec} {scheme} {arguments.clock} {len(lab.checks)}"
    with stages(title, work) as progress:
        if virtual:
            played = _on_virtual_kernel(lab, answer, arguments, progress)
        else:
            played = _played(lab, scheme, progress)
    return report_of(lab.checks, played)


def _read(arguments: Namespace, answer: str | None) -> Lab:
    """Return the lab with the hidden checks, and with the values of the file `answer`."""
    from weft.testbed.labs.lab_file import parse

    lab = parse(
        _text(arguments.lab).text,
        name=arguments.lab,
        answer=None if answer is None else _text(answer),
        hidden=None if arguments.hidden is None else _text(arguments.hidden),
    )
    if not lab.checks:
        raise ValueError(f"{arguments.lab}: it has no checks")
    return lab


def _text(path: str) -> NamedText:
    """Return the text of a file with its path."""
    from weft.testbed.labs.lab_file import NamedText
    from weft.testbed.labs.text_file import text_of

    return NamedText(text_of(path), path)


def _played(lab: Lab, scheme: str, progress: Callable[[str], None]) -> Played:
    """Bring the network up, play the lab, and take the network down."""
    from weft.experiments.cli import lab_commands
    from weft.testbed.labs import running_lab
    from weft.testbed.labs.play import play

    need_root()
    network = lab_commands.create(lab, scheme, progress)
    try:
        progress("commands")
        running_lab.begin(network, lab.commands)
        progress("events and checks")
        return play(network, lab)
    finally:
        network.down()


def _check_inside(arguments: Namespace) -> int:
    """Play a lab on the kernel for virtual time, and send the results to the host."""
    from weft.experiments.cli.lab_commands import checked_scheme
    from weft.experiments.cli.virtual_up import STAGE
    from weft.testbed.labs.play import sent
    from weft.testbed.uml import host_questions

    lab = _read(arguments, arguments.answer)
    played = _played(lab, checked_scheme(lab), lambda stage: say(f"{STAGE}{stage}"))
    host_questions.report(sent(played))
    return 0


def _inputs(answer: str | None, hidden: str | None) -> tuple[list[str], dict[str, str]]:
    """Return the options that name the files inside, and the texts of these files by name."""
    from weft.testbed.uml import host_questions

    words: list[str] = []
    texts = {}
    for option, name, path in (("--answer", ANSWER, answer), ("--hidden", HIDDEN, hidden)):
        if path is not None:
            words += [option, str(host_questions.FOLDER / name)]
            texts[name] = _text(path).text
    return words, texts


def _on_virtual_kernel(
    lab: Lab, answer: str | None, arguments: Namespace, progress: Callable[[str], None]
) -> Played:
    """Return the results of this command on a kernel for virtual time.

    The kernel sees the lab's folder, and can write nothing outside.

    Raises:
        FailedInside: the command failed there.
        TimeoutError: it has not ended in time.
    """
    from weft.experiments.cli.virtual_up import MEMORY_MB, GuestMessages
    from weft.testbed.labs.play import received
    from weft.testbed.runs import isolated_python
    from weft.testbed.uml import uml

    path = Path(arguments.lab).resolve()
    words, texts = _inputs(answer, arguments.hidden)
    exchange = uml.Exchange(texts)
    messages = GuestMessages(progress)
    progress("a kernel for virtual time boots")
    try:
        status = uml.run(
            isolated_python.command("weft.experiments.cli.cli", ["check", path.name, *words]),
            virtual=uml.VirtualClock(seed=arguments.seed),
            memory_mb=MEMORY_MB,
            timeout_s=arguments.timeout_s,
            cwd=path.parent,
            env=os.environ | {REPORTING: "1"},
            stdout=GuestMessages(progress),
            stderr=messages,
            exchange=exchange,
        )
    except TimeoutError:
        given_up = f"{answer or arguments.lab}: given up after {arguments.timeout_s:g} s"
        raise TimeoutError(f"{given_up}; --timeout-s S waits longer") from None
    if status:
        raise FailedInside(messages.last or f"it ended with status {status}", status)
    return received(exchange.report, len(lab.checks))


WIDEST = 60  # characters of a check or an error in a table
LATE_MS = 50.0  # lateness of an event that deserves a warning
TITLE_COLUMNS = ("answer", "points", "of", "passed", "error")  # of the table of several answers


def _title(row: Report) -> str:
    """Return the check of a row of a report, marked if it is hidden."""
    return f"hidden: {row['check']}" if row["hidden"] else row["check"]


def show_report(report: Report) -> None:
    """Print a table of the checks, hints of those that failed, and the sum of points."""
    rows = [
        {
            "check": shorten(_title(row), WIDEST, placeholder=" ..."),
            "points": f"{row['points']}/{row['of']}",
            "result": "passed" if row["passed"] else "FAILED",
            "measured": row["measured"],
        }
        for row in report["checks"]
    ]
    show(rows)
    for row in report["checks"]:
        if row["hint"] and not row["passed"]:
            print(f"\n{_title(row)}\n  hint: {row['hint']}")
    print(f"\n{report['points']} of {report['of']} points")
    if report["fidelity"]:
        print(f"fidelity: {report['fidelity']}, {report['fidelity_worst']}")
    if report["late_ms"] > LATE_MS:
        print(f"weft: an event was {report['late_ms']:.0f} ms late", file=sys.stderr)


def write_junit(path: Path, name: str, report: Report) -> None:
    """Write the report as JUnit XML: a test case for each check."""
    failures = sum(not row["passed"] for row in report["checks"])
    counts = {"tests": str(len(report["checks"])), "failures": str(failures)}
    suite = ElementTree.Element("testsuite", {"name": name, **counts})
    for row in report["checks"]:
        title = {"classname": name, "name": f"line {row['line']}: {_title(row)}"}
        case = ElementTree.SubElement(suite, "testcase", title)
        if not row["passed"]:
            failure = ElementTree.SubElement(case, "failure", {"message": row["measured"]})
            failure.text = row["hint"]
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def write_gradescope(path: Path, report: Report) -> None:
    """Write the report as Gradescope's results.json; students see no hidden check.

    The format: https://gradescope-autograders.readthedocs.io/en/latest/specs/
    """
    tests = [
        {
            "name": row["check"],
            "score": row["points"],
            "max_score": row["of"],
            "status": "passed" if row["passed"] else "failed",
            "output": "\n".join([row["measured"], *([] if row["passed"] else [row["hint"]])]),
            "output_format": "text",
            "visibility": "hidden" if row["hidden"] else "visible",
        }
        for row in report["checks"]
    ]
    path.write_text(json.dumps({"tests": tests}, indent=1) + "\n")


def grade_row(name: str, checks: Sequence[LabCheck], report: Report) -> Report:
    """Return the row of an answer in the table of several, with the points of each check."""
    points = [row["points"] for row in report["checks"]]
    row = {"answer": name, "points": report["points"], "of": report["of"]}
    row |= {"passed": report["passed"], "error": ""}
    return row | dict(zip(_point_columns(checks), points, strict=True))


def error_row(name: str, checks: Sequence[LabCheck], error: object, points: int | None) -> Report:
    """Return the row of an answer that could not be graded.

    Args:
        name: path of the answer.
        checks: of the lab.
        error: the reason.
        points: 0 if the answer is to blame, None if it may not be.
    """
    of = sum(check.points for check in checks)
    return {"answer": name, "points": points, "of": of, "passed": False, "error": str(error)}


def columns_of(checks: Sequence[LabCheck]) -> list[str]:
    """Return the columns of the table of several answers."""
    return [*TITLE_COLUMNS, *_point_columns(checks)]


def _point_columns(checks: Sequence[LabCheck]) -> list[str]:
    titles = [f"hidden: {check.text}" if check.hidden else check.text for check in checks]
    return [f"{number}. {title}" for number, title in enumerate(titles, 1)]


def show_grades(rows: Sequence[Report]) -> None:
    """Print the answers with their points, and the reason of those that were not graded."""
    shown = [{key: row[key] for key in TITLE_COLUMNS if key != "passed"} for row in rows]
    show([{**row, "error": shorten(row["error"], 2 * WIDEST, placeholder=" ...")} for row in shown])
