"""Rows of results: meanings and units of their columns, and row and provenance of a run as JSON.

An experiment declares a sentence for each figure.  The unit is the end of the column's name.  A *
in a declared name matches any text: up*_mean_queue_packets.  encode() writes rows for other tools.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from weft.experiments.runner.definition import COSTS, Experiment, Result, Row, Run, Value

# by the last words of a name; the longest match counts
UNITS = {
    "bps": "bit/s",
    "gbps": "Gbit/s",
    "mbps": "Mbit/s",
    "s": "s",
    "ms": "ms",
    "us": "µs",
    "ns": "ns",
    "slots": "slots",
    "times": "times",
    "packet_times": "packet times",
    "packets": "packets",
    "bytes": "bytes",
    "kib": "KiB",
    "hops": "hops",
    "pairs": "pairs",
    "flows": "flows",
    "messages": "messages",
    "iterations": "iterations",
    "fraction": "fraction",
    "shares": "fractions",
    "ratio": "ratio",
    "slowdown": "times",
    "slowdowns": "times",
    "paths": "paths",
    "usd": "USD",
    "per_pair": "per pair",
    "per_flow": "per flow",
    "per_message": "per message",
    "per_1000_slots": "per 1000 slots",
    "by_flows": "",
    "of_all_pairs": "",
}
# columns that any row may have besides parameters and figures
CIRCUMSTANCES = {
    "seed": "seed of all randomness; equal seeds draw equal failures and traffic",
    "engine": "engine of the run: graph, fabric, packet or kernel",
    "clock": "clock of the kernel engine: real, or virtual (computing takes no time)",
    "virtual_s": "duration of the run by the virtual clock",
    "hop_ns": "processor time of a packet at each hop under the virtual clock",
    "syscall_ns": "processor time of a system call under the virtual clock",
    "fidelity": "PASS, WARN or FAIL: did the emulation keep up?",
    "run": "the run's id: a hash of experiment, version, parameters, seed, engine and clock",
}


class Column(NamedTuple):
    """A column; its unit is empty for counts, names and truth values."""

    name: str
    unit: str
    meaning: str


def column_unit(name: str) -> str:
    """Return the unit of the column called `name`."""
    return UNITS.get(unit_suffix(name), "")


def unit_suffix(name: str) -> str:
    """Return the part of the column's name that names its unit, empty without one."""
    words = name.split("_")
    ends = ["_".join(words[start:]) for start in range(len(words))]
    return next((end for end in ends if end in UNITS), "")


def explained(declared: Mapping[str, str]) -> list[Column]:
    """Return the declared columns, then those that any row may have."""
    return [
        Column(name, column_unit(name), meaning)
        for name, meaning in (*declared.items(), *CIRCUMSTANCES.items())
    ]


def unexplained(
    names: Iterable[str], declared: Mapping[str, str], parameters: Iterable[str]
) -> list[str]:
    """Return the columns that are neither parameters nor circumstances nor declared."""
    known = {*parameters, *CIRCUMSTANCES}
    return [name for name in names if name not in known and not meaning_of(name, declared)]


def meaning_of(name: str, declared: Mapping[str, str]) -> str:
    """Return the declared meaning of the column called `name`, or an empty text."""
    return declared.get(name) or next(
        (text for key, text in declared.items() if fnmatchcase(name, key)), ""
    )


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


def encode(rows: Sequence[Mapping[str, Any]], form: str) -> bytes:
    """Return `rows` as csv, json or parquet.

    The columns are those of any row.  CSV writes a distribution as a JSON list, and a missing value
    as an empty cell.

    Raises:
        ValueError: the format needs a library that is not installed.
    """
    if form == "json":
        return (json.dumps(rows, indent=1, ensure_ascii=False) + "\n").encode()
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return as_csv(rows, columns) if form == "csv" else as_parquet(rows, columns)


def as_csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> bytes:
    """Return `rows` as comma-separated values with a header, in UTF-8."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([cell(row.get(column)) for column in columns])
    return text.getvalue().encode()


def cell(value: Any) -> Any:
    """Return a value as the CSV writer takes it."""
    return json.dumps(value) if isinstance(value, list | bool) else value


def as_parquet(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> bytes:
    """Return `rows` as a Parquet file; ValueError without pyarrow."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        advice = "pip install 'weft-testbed[parquet]'"
        raise ValueError(f"--format parquet needs pyarrow: {advice}") from None
    values = {column: [row.get(column) for row in rows] for column in columns}
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.Table.from_pydict(values), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content
