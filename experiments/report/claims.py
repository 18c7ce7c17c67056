"""Papers' claims about stored cells beside our results: the first table of a report.

A row with `paper_X` beside its column X carries the paper's figure for that cell.  A claim about
several cells is a Statement of the experiment.
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
    """A paper's figure, and ours.

    cell: its parameters, those that differ within the experiment.
    says: the paper's words; "" for a bare figure.
    paper: the figure, or words for a bound or an order.
    ours, half_width: mean over the seeds, and half of its 95 % interval, nan for a single run.
    fidelity: the worst of its runs, "" if they have none.
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
    """Yield the claims about single cells, in the order of the rows, then the statements."""
    keys = (*experiment.sweep, "engine", "clock", *COSTS)
    varied = [
        key for key in keys if key == "topology" or len({str(row.get(key)) for row in rows}) > 1
    ]
    for group in cells(rows, keys).values():
        for key, paper in group[0].items():
            column = key.removeprefix(PAPER)
            if key == column or not is_number(paper):
                continue
            values = [float(str(row[column])) for row in group if is_number(row.get(column))]
            if values:
                claim = _claim(experiment, "", column, float(str(paper)), values, group)
                yield claim._replace(cell=_named(group[0], varied))
    for statement in experiment.statements:
        yield from stated(experiment, statement, rows, keys)


def cells(rows: Sequence[Row], keys: Collection[str]) -> Mapping[tuple[str, ...], list[Row]]:
    """Return the rows by their values of `keys`."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(_values(row, keys), []).append(row)
    return groups


def stated(
    experiment: Experiment, statement: Statement, rows: Sequence[Row], keys: Collection[str]
) -> Iterator[PaperClaim]:
    """Yield `statement` beside our result, for each cell that it is about."""
    own = [row for row in rows if _agrees(row, statement.cell)]
    free = [key for key in keys if key not in statement.cell]
    varied = [key for key in free if len({str(row.get(key)) for row in own}) > 1]
    over = "".join(f", over that of {key}={value}" for key, value in statement.over.items())
    for group in cells(own, free).values():
        values, used = _measured(statement, rows, group, (*free, "seed"))
        if values:
            column = statement.column
            claim = _claim(experiment, column, column + over, statement.paper, values, used)
            yield claim._replace(cell=_named(group[0], varied), says=statement.says)


def _measured(
    statement: Statement, rows: Sequence[Row], group: Sequence[Row], keys: Collection[str]
) -> tuple[list[float], list[Row]]:
    """Return the values of a statement's figure in `group`, and the rows that they come from.

    A statement about a ratio divides by the last row that agrees in `keys` with its `over`.
    """
    values = []
    used = []
    bases = [row for row in rows if _agrees(row, {**statement.cell, **statement.over})]
    divisors = cells(bases, keys)
    for row in group:
        value = row.get(statement.column)
        if not is_number(value):
            continue
        if not statement.over:
            values.append(float(str(value)))
            used.append(row)
            continue
        base = divisors.get(_values(row, keys), [{}])[-1]
        divisor = base.get(statement.column)
        if is_number(divisor) and divisor:
            values.append(float(str(value)) / float(str(divisor)))
            used += [row, base]
    return values, used


def _claim(
    experiment: Experiment,
    unit_of: str,
    column: str,
    paper: float | str,
    values: Sequence[float],
    rows: Sequence[Row],
) -> PaperClaim:
    """Return the claim of `values`, which come from `rows`.

    Args:
        unit_of: the column that gives meaning and unit, if that is not `column`.
    """
    mean, half_width = mean_and_half_width(values)
    verdicts = Counter(str(row.get("fidelity")) for row in rows)
    return PaperClaim(
        cell="",
        says="",
        column=column,
        meaning=columns.meaning_of(unit_of or column, experiment.columns) or "",
        unit=columns.unit(unit_of or column),
        paper=paper,
        ours=mean,
        half_width=half_width if len(values) > 1 else math.nan,
        runs=len(values),
        fidelity=next((name for name in WORST if verdicts[name]), ""),
    )


def _values(row: Row, keys: Collection[str]) -> tuple[str, ...]:
    return tuple(str(row.get(key)) for key in keys)


def _named(row: Row, keys: Collection[str]) -> str:
    return ", ".join(f"{name}={row[name]}" for name in keys if row.get(name) is not None)


def _agrees(row: Row, values: Mapping[str, object]) -> bool:
    return all(row.get(key) == value for key, value in values.items())
