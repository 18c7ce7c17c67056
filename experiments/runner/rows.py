"""What is stored of a run: one row, and its provenance, as JSON."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from weft.experiments.runner.columns import CIRCUMSTANCES
from weft.experiments.runner.definition import COSTS, Experiment, Result, Row, Run


def row_of(run: Run, result: Result) -> Row:
    """Parameters, figures and circumstances of `run` side by side.

    ValueError if one name would say two things, or a figure is not finite: what could not be
    measured is None.
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
    clock |= {cost: given for cost in COSTS if (given := getattr(run, cost))}
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
    """`value` as JSON has it: numbers of numpy are Python's, tuples are lists."""
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value.item() if hasattr(value, "item") else value


def provenance_of(
    run: Run, result: Result, about: Mapping[str, Any], wall_s: float
) -> dict[str, Any]:
    """What `run` was measured with: `about` the code and the machine, what the run itself tells,
    and its wall time."""
    return {
        "run": {**run.content, "id": run.id},
        **about,
        **result.circumstances,
        "fidelity": result.fidelity,
        "wall_s": wall_s,
    }


def text_of(content: Mapping[str, Any]) -> str:
    """`content` as JSON; TypeError for what is not JSON-able."""
    return json.dumps(content, ensure_ascii=False, default=plain_or_nothing)


def plain_or_nothing(value: Any) -> Any:
    """What json.dumps() asks for a value that it does not know."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be stored as JSON")


def checksum(*texts: str) -> str:
    """Of what is stored of a run, 16 hexadecimal digits."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def order(experiment: Experiment, row: Row) -> tuple[Any, ...]:
    """Sorts rows by engine, parameters and seed, numbers before texts."""
    keys = ["engine", *experiment.sweep, "seed"]
    return (row.get("clock", ""), *((isinstance(row[key], str), row[key]) for key in keys))
