"""Check that runs under the virtual clock are repeatable."""

from __future__ import annotations

from collections.abc import Sequence

from weft.experiments.runner import virtual_runs
from weft.experiments.runner.definition import Result, Row, Run
from weft.experiments.runner.rows import row_of, text_of


def differences(runs: Sequence[Run], rows: Sequence[Row]) -> list[str]:
    """Measure `runs` again and return a line for each whose row is not the one in `rows`."""
    stored = {row["run"]: row for row in rows}
    lines = []
    for run in runs:
        outcome = virtual_runs.measure(run).outcome
        if not isinstance(outcome, Result):
            lines.append(f"{run}: measured once more it failed: {outcome.reason}")
            continue
        row = row_of(run, outcome)
        before = stored[run.id]
        keys = [
            key
            for key in {**row, **before}
            if text_of({key: row.get(key)}) != text_of({key: before.get(key)})
        ]
        if keys:
            lines.append(f"{run}: measured once more it gives another {', '.join(sorted(keys))}")
    return lines
