"""Whether runs under the virtual clock give the same again."""

from __future__ import annotations

from collections.abc import Sequence

from weft.experiments.runner import virtual_runs
from weft.experiments.runner.definition import Result, Row, Run
from weft.experiments.runner.rows import row_of, text_of


def differences(runs: Sequence[Run], rows: Sequence[Row]) -> list[str]:
    """A line for each of `runs` that, measured once more, gives another row than the one in `rows`;
    none is stored."""
    stored = {row["run"]: row for row in rows}
    found = []
    for run in runs:
        given = virtual_runs.measure(run).given
        if not isinstance(given, Result):
            found.append(f"{run}: measured once more it failed: {given.reason}")
            continue
        row = row_of(run, given)
        before = stored[run.id]
        keys = [
            key
            for key in {**row, **before}
            if text_of({key: row.get(key)}) != text_of({key: before.get(key)})
        ]
        if keys:
            found.append(f"{run}: measured once more it gives another {', '.join(sorted(keys))}")
    return found
