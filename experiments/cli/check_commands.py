"""Commands that carry out a lab: check plays it and grades it, apply changes a running network."""

from __future__ import annotations

import json
import math
import os
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING
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
    from weft.testbed.labs.lab_file import Lab, NamedText
    from weft.testbed.labs.play import Played
    from weft.testbed.labs.report import Report

ANSWER = "answer.yaml"  # in the folder that the kernel for virtual time shares with the host
REPORTING = "WEFT_REPORTING"  # environment variable of this command on that kernel
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
        help="file with values that the lab's key answer allows, such as scheme: ecmp",
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
    from weft.experiments.cli.lab_commands import checked_scheme, require_trust
    from weft.experiments.cli.virtual_up import require_rates
    from weft.experiments.runner.console import stages
    from weft.testbed.labs.report import report_of

    if REPORTING in os.environ:
        return _check_inside(arguments)
    lab, answer = _read(arguments)
    require_trust(lab, trust=arguments.trust)
    virtual = arguments.clock == "virtual"
    scheme = checked_scheme(lab, virtual=virtual)
    if virtual:
        require_rates(lab)
    if arguments.junit is not None:  # refuse the path now, and leave no older results there
        Path(arguments.junit).write_bytes(b"")
    with stages("checking") as progress:
        if virtual:
            status, results = _on_virtual_kernel(lab, answer, arguments, progress)
            if results is None:  # the error is printed
                return status
            played = results
        else:
            played = _played(lab, scheme, progress)
    report = report_of(lab.checks, played)
    if arguments.junit is not None:
        write_junit(Path(arguments.junit), arguments.lab, report)
    if arguments.json:
        print(json.dumps(report))
    else:
        show_report(report)
    return 0 if report["passed"] else 1


def _read(arguments: Namespace) -> tuple[Lab, NamedText | None]:
    """Return the lab with the values of the answer, and the answer."""
    from weft.experiments.cli.lab_commands import text_of
    from weft.testbed.labs.lab_file import NamedText, parse

    path = arguments.answer
    answer = None if path is None else NamedText(text_of(path), path)
    lab = parse(text_of(arguments.lab), name=arguments.lab, answer=answer)
    if not lab.checks:
        raise ValueError(f"{arguments.lab}: it has no checks")
    return lab, answer


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
    from weft.experiments.cli.guest_output import STAGE
    from weft.experiments.cli.lab_commands import checked_scheme
    from weft.experiments.runner.console import say
    from weft.testbed.labs.report import sent
    from weft.testbed.uml import host_questions

    lab, _ = _read(arguments)
    played = _played(lab, checked_scheme(lab), lambda stage: say(f"{STAGE}{stage}"))
    host_questions.report(sent(played))
    return 0


def _on_virtual_kernel(
    lab: Lab,
    answer: NamedText | None,
    arguments: Namespace,
    progress: Callable[[str], None],
) -> tuple[int, Played | None]:
    """Return exit status and results of this command on a kernel for virtual time.

    The kernel sees the lab's folder, and can write nothing outside.
    """
    from weft.experiments.cli.guest_output import GuestMessages
    from weft.experiments.cli.virtual_up import MEMORY_MB
    from weft.testbed.labs.report import received
    from weft.testbed.runs import isolated_python
    from weft.testbed.uml import host_questions, uml

    path = Path(arguments.lab).resolve()
    words = ["check", path.name]
    inputs = {}
    if answer is not None:
        words += ["--answer", str(host_questions.FOLDER / ANSWER)]
        inputs[ANSWER] = answer.text
    exchange = uml.Exchange(inputs)
    progress("a kernel for virtual time boots")
    status = uml.run(
        isolated_python.command("weft.experiments.cli.cli", words),
        virtual=uml.VirtualClock(seed=arguments.seed),
        memory_mb=MEMORY_MB,
        timeout_s=math.inf,
        cwd=path.parent,
        env=os.environ | {REPORTING: "1"},
        stdout=GuestMessages(progress),
        stderr=GuestMessages(progress),
        exchange=exchange,
    )
    return status, None if status else received(exchange.report, len(lab.checks))


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
