"""Report on a played lab, and the text by which a kernel for virtual time sends it to the host.

The host believes of that text only whether each check passed, and what was measured: everything
else it knows from the lab.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from weft.testbed.labs.judgement import CheckVerdict
from weft.testbed.labs.play import Played
from weft.testbed.labs.timeline import LabCheck
from weft.topologies.core.grammar import printable

Report = dict[str, Any]
MOST_CHARACTERS = 2000  # of what a check has measured


def report_of(checks: Sequence[LabCheck], played: Played) -> Report:
    """Return the report of a played lab."""
    rows = [
        {
            "check": check.text,
            "line": check.line,
            "hidden": check.hidden,
            "points": check.points * verdict.passed,
            "of": check.points,
            "passed": verdict.passed,
            "measured": verdict.measured,
            "hint": check.hint,
        }
        for check, verdict in zip(checks, played.verdicts, strict=True)
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


def sent(played: Played) -> str:
    """Return the text that received() reads; fidelity is left out, as the clock is virtual."""
    return json.dumps([played.late_s, played.verdicts])


def received(text: str, checks: int) -> Played:
    """Return the results of as many `checks` in the text of a kernel.

    Raises:
        OSError: it is malformed, as it is after a second writer.
    """
    try:
        late_s, rows = json.loads(text)
        verdicts = tuple(_verdict(*row) for row in rows)
        well_formed = type(late_s) is float and math.isfinite(late_s) and len(verdicts) == checks
    except (ValueError, TypeError, RecursionError):
        well_formed = False
    if not well_formed:
        raise OSError("the report of the lab's kernel is malformed")
    return Played(verdicts, late_s)


def _verdict(passed: Any, measured: Any) -> CheckVerdict:
    """Return a verdict; TypeError if the types differ."""
    if not isinstance(passed, bool) or not isinstance(measured, str):
        raise TypeError
    return CheckVerdict(passed, printable(measured[:MOST_CHARACTERS])[:MOST_CHARACTERS])
