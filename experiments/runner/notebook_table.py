"""The table of results that a notebook shows."""

from __future__ import annotations

from html import escape
from typing import Any

MOST_ROWS = 100


class Rows(list[dict[str, Any]]):
    """Rows of results, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        columns = list(dict.fromkeys(key for row in self for key in row))
        head = "".join(f"<th>{escape(name)}</th>" for name in columns)
        lines = (
            "".join(f"<td>{escape(_text(row.get(name, '')))}</td>" for name in columns)
            for row in self[:MOST_ROWS]
        )
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        rest = f"<p>{len(self) - MOST_ROWS} more rows</p>" if len(self) > MOST_ROWS else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
