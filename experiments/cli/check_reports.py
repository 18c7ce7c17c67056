"""Reports on labs as people and other programs read them: tables, JUnit XML, CSV, Gradescope."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from weft.experiments.runner.console import show

if TYPE_CHECKING:
    from weft.testbed.labs.play import Report
    from weft.testbed.labs.timeline import LabCheck

WIDEST = 60  # characters of a check or an error in a table
LATE_MS = 50.0  # lateness of an event that deserves a warning
TITLE_COLUMNS = ("answer", "points", "of", "passed", "error")  # of the table of several answers


def _title(row: Report) -> str:
    """Return the check of a row of a report, marked if it is hidden."""
    return f"hidden: {row['check']}" if row["hidden"] else str(row["check"])


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


def write_gradescope_refusal(path: Path, reason: str) -> None:
    """Write results.json for an answer that was refused, with the reason for the student."""
    path.write_text(json.dumps({"score": 0, "output": reason}, indent=1) + "\n")


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
