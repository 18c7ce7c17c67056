"""The table of results that a notebook shows."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

MOST_ROWS = 100


class Rows(list[dict[str, Any]]):
    """Rows of results, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        columns = list(dict.fromkeys(key for row in self for key in row))
        head = "".join(f"<th>{escape(name)}</th>" for name in columns)
        body = "".join(f"<tr>{_cells(row, columns)}</tr>" for row in self[:MOST_ROWS])
        rest = f"<p>{len(self) - MOST_ROWS} more rows</p>" if len(self) > MOST_ROWS else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


def _cells(row: Mapping[str, Any], columns: list[str]) -> str:
    return "".join(f"<td>{escape(_text(row.get(name, '')))}</td>" for name in columns)


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
