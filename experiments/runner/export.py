"""Rows as other tools read them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any


def written(rows: Sequence[Mapping[str, Any]], form: str) -> bytes:
    """`rows` as csv, json or parquet; ValueError if a library is missing for it.

    A column is there if one row has it.  In CSV a distribution is a JSON list, and what is not
    there is empty.
    """
    if form == "json":
        return (json.dumps(rows, indent=1, ensure_ascii=False) + "\n").encode()
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return as_csv(rows, columns) if form == "csv" else as_parquet(rows, columns)


def as_csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> bytes:
    """`rows` as comma-separated values under a line of `columns`, in UTF-8; what a row lacks is
    empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([cell(row.get(column)) for column in columns])
    return text.getvalue().encode()


def cell(value: Any) -> Any:
    """A value of a row as CSV has it."""
    return json.dumps(value) if isinstance(value, list | bool) else value


def as_parquet(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> bytes:
    """`rows` as a Parquet file; ValueError where pyarrow is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ValueError(
            "--format parquet needs pyarrow: pip install 'weft-testbed[parquet]'"
        ) from None
    table = pyarrow.Table.from_pydict(
        {column: [row.get(column) for row in rows] for column in columns}
    )
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content
