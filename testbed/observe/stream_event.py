"""The type of an event of a run, as docs/watching.md specifies it."""

from __future__ import annotations

from typing import Any

StreamEvent = dict[str, Any]
