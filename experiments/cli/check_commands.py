"""Commands that carry out a lab: check plays it and grades it, apply changes a running network."""

from __future__ import annotations

import io
import json
import math
import os
import sys
from argparse import Namespace
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from weft.experiments.cli.options import (
    Commands,
    add_command,
    add_flag,
    add_json,
    add_run,
    add_trust,
)
from weft.experiments.runner.console import show
from weft.testbed.linux.process import need_root

if TYPE_CHECKING:
    from weft.testbed.labs.lab_file import Lab
    from weft.testbed.labs.play import Played

Report = dict[str, Any]
ANSWER = "answer.yaml"  # in the folder that the kernel for virtual time shares with the host
WIDEST = 60  # characters of a check in the table
LATE_MS = 50.0  # lateness of an event that deserves a warning


def add_commands(commands: Commands) -> None:
    """Add this file's commands to the parser."""
    parser = add_command(
        commands, "check", check, "bring a lab up, play its events, and grade its checks"
    )
    parser.add_argument("lab", metavar="LAB", help="file such as lab.yaml (docs/labs.md)")
    parser.add_argument(
        "--answer",
        metavar="FILE",
        help="file whose keys, such as scheme or links, replace those of the lab",
    )
    parser.add_argument(
        "--clock",
        choices=["real", "virtual"],
        default="virtual",
        help="virtual: exact, needs no root, every link has a rate; default: virtual",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        help="seed of all randomness under the virtual clock; default: 1",
    )
    add_json(parser)
    parser.add_argument("--junit", metavar="FILE", help="write the results as JUnit XML")
    add_trust(parser)

    parser = add_command(
        commands, "apply", apply, "change the links of a running network to those of a lab"
    )
    parser.add_argument("lab", metavar="LAB", help="file such as lab.yaml")
    add_flag(parser, "--dry-run", help="print the changes and make none")
    add_run(parser)


def check(arguments: Namespace) -> int:
    """Grade a lab; return 1 if a check fails."""
    from weft.experiments.cli.lab_commands import require_trust, text_of
    from weft.testbed.labs.lab_file import parse

    answer = None if arguments.answer is None else text_of(arguments.answer)
    lab = parse(text_of(arguments.lab), name=arguments.lab, answer=answer)
    if not lab.checks:
        raise ValueError(f"{arguments.lab}: it has no checks")
    require_trust(lab, trust=arguments.trust)
    if arguments.junit is not None:  # refuse the path now, and leave no older results there
        Path(arguments.junit).write_bytes(b"")
    if arguments.clock == "real":
        report = _measured(lab)
    else:
        status, output = _on_virtual_kernel(lab, arguments, answer)
        if not output:  # the error is printed
            return status
        report = json.loads(output)
    if arguments.junit is not None:
        write_junit(Path(arguments.junit), arguments.lab, report)
    if arguments.json:
        print(json.dumps(report))
    else:
        show_report(report)
    return 0 if report["passed"] else 1


def _measured(lab: Lab) -> Report:
    """Bring the network up, play the lab, take it down, and return the report."""
    from weft.experiments.cli.lab_commands import brought_up, checked_scheme
    from weft.testbed.labs import running_lab
    from weft.testbed.labs.play import play

    scheme = checked_scheme(lab)
    need_root()
    with brought_up(lab, scheme) as network:
        running_lab.begin(network, lab.commands)
        return report_of(play(network, lab))


def report_of(played: Played) -> Report:
    """Return the report of a played lab."""
    rows = [
        {
            "check": result.check.text,
            "line": result.check.line,
            "points": result.check.points * result.verdict.passed,
            "of": result.check.points,
            "passed": result.verdict.passed,
            "measured": result.verdict.measured,
            "hint": result.check.hint,
        }
        for result in played.results
    ]
    return {
        "passed": all(row["passed"] for row in rows),
        "points": sum(row["points"] for row in rows),
        "of": sum(row["of"] for row in rows),
        "late_ms": round(1000 * played.late_s, 3),
        "fidelity": played.fidelity.verdict if played.fidelity else None,
        "fidelity_worst": played.fidelity.offender if played.fidelity else None,
        "checks": rows,
    }


def _on_virtual_kernel(lab: Lab, arguments: Namespace, answer: str | None) -> tuple[int, bytes]:
    """Return exit status and JSON of this command on a kernel for virtual time.

    The kernel sees the lab's folder, and can write nothing outside.
    """
    from weft.experiments.cli.virtual_up import MEMORY_MB, require_rates
    from weft.testbed.runs import isolated_python
    from weft.testbed.uml import host_questions, uml

    require_rates(lab)
    path = Path(arguments.lab).resolve()
    words = ["check", path.name, "--clock", "real", "--json", "--trust"]
    exchange = uml.Exchange()
    if answer is not None:
        words += ["--answer", str(host_questions.FOLDER / ANSWER)]
        exchange = uml.Exchange({ANSWER: answer})
    output = io.BytesIO()
    status = uml.run(
        isolated_python.command("weft.experiments.cli.cli", words),
        virtual=uml.VirtualClock(seed=arguments.seed),
        memory_mb=MEMORY_MB,
        timeout_s=math.inf,
        cwd=path.parent,
        env=os.environ,
        stdout=output,
        exchange=exchange,
    )
    return status, output.getvalue()


def show_report(report: Report) -> None:
    """Print a table of the checks, hints of those that failed, and the sum of points."""
    rows = [
        {
            **row,
            "check": shorten(row["check"], WIDEST, placeholder=" ..."),
            "points": f"{row['points']}/{row['of']}",
            "result": "passed" if row["passed"] else "FAILED",
        }
        for row in report["checks"]
    ]
    show(rows, ["check", "points", "result", "measured"])
    for row in rows:
        if row["hint"] and not row["passed"]:
            print(f"\n{row['check']}\n  hint: {row['hint']}")
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
        title = {"classname": name, "name": f"line {row['line']}: {row['check']}"}
        case = ElementTree.SubElement(suite, "testcase", title)
        if not row["passed"]:
            failure = ElementTree.SubElement(case, "failure", {"message": row["measured"]})
            failure.text = row["hint"]
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def apply(arguments: Namespace) -> int:
    """Print how a running network's links differ from a lab, and change them."""
    from weft.experiments.cli.lab_commands import text_of
    from weft.testbed.labs import link_changes
    from weft.testbed.labs.lab_file import parse
    from weft.testbed.network.network import RunningNetwork

    lab = parse(text_of(arguments.lab), name=arguments.lab)
    network = RunningNetwork.open(arguments.run)
    changes = link_changes.changes(network, lab)
    for change in changes:
        print(change)
    if not changes:
        print(f"{network.run.id} has the links of {arguments.lab}", file=sys.stderr)
    if not arguments.dry_run:
        link_changes.apply(network, changes)
    return 0
