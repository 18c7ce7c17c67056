"""Rows in the formats of other tools."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any


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
