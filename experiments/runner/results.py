"""Results on disk: one row in Parquet for each run, and its circumstances in JSON beside it.

    results/ledger.sqlite
    results/<experiment>/<run id>.parquet
    results/<experiment>/<run id>.json

A file appears whole or not at all, the JSON before the Parquet: where there is a row there are its circumstances, at
whatever moment the sweep was killed.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from experiments.runner.definition import CIRCUMSTANCES, Experiment, Result, Row, Run


class Store:
    """The results under one directory, which is made when the first comes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, run: Run) -> Path:
        """Where the row of `run` is, or would be."""
        return self.root / run.experiment / f"{run.id}.parquet"

    def put(self, run: Run, result: Result, circumstances: Mapping[str, Any], wall_s: float) -> None:
        """Store what `run` gave."""
        import pyarrow
        import pyarrow.parquet

        row, path = row_of(run, result), self.path(run)
        path.parent.mkdir(parents=True, exist_ok=True)
        manifest = {
            "run": {**run.content, "id": run.id},
            **circumstances,
            **result.circumstances,
            "fidelity": result.fidelity,
            "wall_s": wall_s,
        }
        path.unlink(missing_ok=True)  # a row that is measured again never stands beside the new circumstances
        write(path.with_suffix(".json"), json.dumps(manifest, indent=1).encode() + b"\n")
        sink = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), sink)
        write(path, sink.getvalue().to_pybytes())

    def __contains__(self, run: Run) -> bool:
        return self.path(run).exists()

    def rows(self, runs: Iterable[Run]) -> list[Row]:
        """The rows of those of `runs` that have one."""
        return [read(self.path(run)) for run in runs if run in self]

    def circumstances(self, run: Run) -> dict[str, Any]:
        """The circumstances that are stored for `run`."""
        found: dict[str, Any] = json.loads(self.path(run).with_suffix(".json").read_text(encoding="utf-8"))
        return found

    def table(self, experiment: Experiment) -> list[tuple[Row, dict[str, Any]]]:
        """Every row of `experiment` in its present version, with its circumstances, in order of parameters and seed."""
        found = []
        for path in (self.root / experiment.name).glob("*.json"):
            row = path.with_suffix(".parquet")
            circumstances = json.loads(path.read_text(encoding="utf-8"))
            run = circumstances["run"]
            current = run["version"] == experiment.version and run["parameters"].keys() == experiment.sweep.keys()
            if current and row.exists():
                found.append((read(row), circumstances))
        return sorted(found, key=lambda entry: order(experiment, entry[0]))

    def sweep_up(self) -> None:
        """Remove the unfinished files of processes that are no more."""
        for path in self.root.glob("*/.*.tmp"):
            if not runs(pid=int(path.suffixes[-2][1:])):
                path.unlink(missing_ok=True)


def runs(pid: int) -> bool:
    """Whether the process exists and is not merely waiting to be buried."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def row_of(run: Run, result: Result) -> Row:
    """Parameters, figures and circumstances of `run` side by side.

    ValueError if one name would say two things, or a figure is not finite: what could not be measured is None.
    """
    for key, value in result.figures.items():
        if key in run.parameters or key in CIRCUMSTANCES:
            raise ValueError(f"figure {key} has the name of a parameter or circumstance")
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, float) and not math.isfinite(number):
                raise ValueError(f"figure {key} is {number}; what could not be measured is None")
    fidelity: Row = {} if result.fidelity is None else {"fidelity": result.fidelity}
    return {**run.parameters, **result.figures, "seed": run.seed, "engine": run.engine, **fidelity, "run": run.id}


def order(experiment: Experiment, row: Row) -> tuple[Any, ...]:
    """Sorts rows by engine, parameters and seed, numbers before texts."""
    keys = ["engine", *experiment.sweep, "seed"]
    return tuple((isinstance(row[key], str), row[key]) for key in keys)


def read(path: Path) -> Row:
    """The one row of a Parquet file."""
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        (row,) = file.read(use_threads=False).to_pylist()
    found: Row = row
    return found


def write(path: Path, content: bytes) -> None:
    """Put a file in place, whole."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with unfinished.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
