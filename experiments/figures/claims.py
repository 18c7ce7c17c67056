"""What papers say of cells that are stored, beside what came out: the table with which a report begins.

A row that has `paper_X` beside its column X says what the paper gives for that cell.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from weft.experiments.figures import figures
from weft.experiments.runner import columns
from weft.experiments.runner.definition import COSTS, Experiment, Row

PAPER = "paper_"
WORST = ("FAIL", "WARN", "PASS")


class Claim(NamedTuple):
    """A figure of a paper's, and ours.

    cell: what it is about, parameters that differ within the experiment.
    ours, half_width: mean over the seeds, and half of its 95 % interval, nan for a single run.
    fidelity: the worst of its runs, "" where there is none.
    """

    cell: str
    column: str
    meaning: str
    unit: str
    paper: float
    ours: float
    half_width: float
    runs: int
    fidelity: str


def claims(experiment: Experiment, rows: Sequence[Row]) -> Iterator[Claim]:
    """The claims of all cells, in the order of the rows."""
    keys = (*experiment.sweep, "engine", "clock", *COSTS)
    varied = [key for key in keys if key == "topology" or len({str(row.get(key)) for row in rows}) > 1]
    cells: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        cells.setdefault(tuple(str(row.get(key)) for key in keys), []).append(row)
    for group in cells.values():
        for key, said in group[0].items():
            column = key.removeprefix(PAPER)
            if key == column or not _is_number(said):
                continue
            values = [float(str(row[column])) for row in group if _is_number(row.get(column))]
            if not values:
                continue
            mean, half_width = figures.mean_and_half_width(values)
            verdicts = Counter(str(row.get("fidelity")) for row in group)
            yield Claim(
                cell=", ".join(f"{name}={group[0][name]}" for name in varied if group[0].get(name) is not None),
                column=column,
                meaning=columns.meaning_of(column, experiment.columns) or "",
                unit=columns.unit(column),
                paper=float(str(said)),
                ours=mean,
                half_width=half_width if len(values) > 1 else math.nan,
                runs=len(values),
                fidelity=next((name for name in WORST if verdicts[name]), ""),
            )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
