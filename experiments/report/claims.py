"""What papers say of cells that are stored, beside what came out: the table with which a report
begins.

A row that has `paper_X` beside its column X says what the paper gives for that cell; what it says
of several cells is a Statement of the experiment.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from weft.experiments.report.comparison import is_number
from weft.experiments.report.statistics import mean_and_half_width
from weft.experiments.runner import columns
from weft.experiments.runner.definition import COSTS, Experiment, Row, Statement

PAPER = "paper_"
WORST = ("FAIL", "WARN", "PASS")


class PaperClaim(NamedTuple):
    """A figure of a paper's, and ours.

    cell: what it is about, parameters that differ within the experiment.
    says: the paper's words; "" where the figure stands for itself.
    paper: the figure, or words for a bound or an order.
    ours, half_width: mean over the seeds, and half of its 95 % interval, nan for a single run.
    fidelity: the worst of its runs, "" where there is none.
    """

    cell: str
    says: str
    column: str
    meaning: str
    unit: str
    paper: float | str
    ours: float
    half_width: float
    runs: int
    fidelity: str


def claims(experiment: Experiment, rows: Sequence[Row]) -> Iterator[PaperClaim]:
    """The claims of all cells, in the order of the rows, and after them those of the experiment's
    statements."""
    keys = (*experiment.sweep, "engine", "clock", *COSTS)
    varied = [
        key for key in keys if key == "topology" or len({str(row.get(key)) for row in rows}) > 1
    ]
    for group in cells(rows, keys).values():
        for key, said in group[0].items():
            column = key.removeprefix(PAPER)
            if key != column and is_number(said):
                values = [float(str(row[column])) for row in group if is_number(row.get(column))]
                made = _claim(experiment, "", column, float(str(said)), values, group)
                yield from [made._replace(cell=_named(group[0], varied))] if values else []
    for statement in experiment.statements:
        yield from stated(experiment, statement, rows, keys)


def cells(rows: Sequence[Row], keys: Collection[str]) -> Mapping[tuple[str, ...], list[Row]]:
    """The rows, by their values of `keys`."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(str(row.get(key)) for key in keys), []).append(row)
    return found


def stated(
    experiment: Experiment, statement: Statement, rows: Sequence[Row], keys: Collection[str]
) -> Iterator[PaperClaim]:
    """What `statement` says beside what each cell has that it is about."""
    own = [row for row in rows if _agrees(row, statement.cell)]
    free = [key for key in keys if key not in statement.cell]
    varied = [key for key in free if len({str(row.get(key)) for row in own}) > 1]
    divisors = cells(
        [row for row in rows if _agrees(row, {**statement.cell, **statement.over})], (*free, "seed")
    )
    for group in cells(own, free).values():
        used, values = [], []
        for row in group:
            value = row.get(statement.column)
            under = (
                divisors.get(tuple(str(row.get(key)) for key in (*free, "seed")), [])
                if statement.over
                else []
            )
            by = under[-1].get(statement.column) if under else None
            if not is_number(value) or (statement.over and not (is_number(by) and by)):
                continue
            used += [row, *under[-1:]]
            values.append(float(str(value)) / (float(str(by)) if statement.over else 1))
        if values:
            column = statement.column + "".join(
                f", over that of {key}={one}" for key, one in statement.over.items()
            )
            claim = _claim(experiment, statement.column, column, statement.paper, values, used)
            yield claim._replace(cell=_named(group[0], varied), says=statement.says)


def _claim(
    experiment: Experiment,
    of: str,
    column: str,
    paper: float | str,
    values: Sequence[float],
    rows: Sequence[Row],
) -> PaperClaim:
    """Of `values`, which `rows` gave; `of`: the column whose meaning it has, if that is not
    `column`."""
    mean, half_width = mean_and_half_width(values)
    verdicts = Counter(str(row.get("fidelity")) for row in rows)
    return PaperClaim(
        cell="",
        says="",
        column=column,
        meaning=columns.meaning_of(of or column, experiment.columns) or "",
        unit=columns.unit(of or column),
        paper=paper,
        ours=mean,
        half_width=half_width if len(values) > 1 else math.nan,
        runs=len(values),
        fidelity=next((name for name in WORST if verdicts[name]), ""),
    )


def _named(row: Row, keys: Collection[str]) -> str:
    return ", ".join(f"{name}={row[name]}" for name in keys if row.get(name) is not None)


def _agrees(row: Row, values: Mapping[str, object]) -> bool:
    return all(row.get(key) == value for key, value in values.items())
