"""Row and provenance of a run, as stored in JSON."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft.experiments.runner.columns import CIRCUMSTANCES
from weft.experiments.runner.definition import COSTS, Experiment, Result, Row, Run, Value


def row_of(run: Run, result: Result) -> Row:
    """Return the row of `run`: parameters, figures and circumstances.

    Raises:
        ValueError: a figure has the name of another column, or is not finite.
    """
    figures = {key: plain(value) for key, value in result.figures.items()}
    for key, value in figures.items():
        if key in run.parameters or key in CIRCUMSTANCES:
            raise ValueError(f"figure {key} has the name of a parameter or circumstance")
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, float) and not math.isfinite(number):
                raise ValueError(f"figure {key} is {number}; what could not be measured is None")
    fidelity: Row = {} if result.fidelity is None else {"fidelity": result.fidelity}
    clock: Row = {"clock": run.clock} if run.engine == "kernel" else {}
    if result.virtual_s is not None:
        clock["virtual_s"] = result.virtual_s
    clock |= {cost: getattr(run, cost) for cost in COSTS if getattr(run, cost)}
    return {
        **run.parameters,
        **figures,
        "seed": run.seed,
        "engine": run.engine,
        **clock,
        **fidelity,
        "run": run.id,
    }


def plain(value: Any) -> Any:
    """Return `value` for JSON: numbers of numpy become Python's, tuples become lists."""
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.item() if hasattr(value, "item") else value


def provenance_of(
    run: Run, result: Result, about: Mapping[str, Any], wall_s: float
) -> dict[str, Any]:
    """Return the provenance of `run`: code and machine (`about`), circumstances, and wall time."""
    return {
        "run": {**run.content, "id": run.id},
        **about,
        **result.circumstances,
        "fidelity": result.fidelity,
        "wall_s": wall_s,
    }


def text_of(content: Mapping[str, Any]) -> str:
    """Return `content` as JSON; TypeError for a value that JSON cannot hold."""
    return json.dumps(content, ensure_ascii=False, default=plain_or_nothing)


def plain_or_nothing(value: Any) -> Any:
    """Convert a number of numpy for json.dumps(); TypeError for other types."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be stored as JSON")


def checksum(*texts: str) -> str:
    """Return 16 hexadecimal digits, a hash of the stored texts of a run."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def grouped(rows: Iterable[Row], keys: Sequence[str]) -> dict[tuple[Value, ...], list[Row]]:
    """Return the rows by their values of `keys`; None stands for a missing value."""
    groups: dict[tuple[Value, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    return groups


def order(experiment: Experiment, row: Row) -> tuple[Any, ...]:
    """Return the sort key of a row: clock, engine, parameters, seed; numbers before texts."""
    keys = ["engine", *experiment.sweep, "seed"]
    return (row.get("clock", ""), *((isinstance(row[key], str), row[key]) for key in keys))
