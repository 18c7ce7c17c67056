"""Failures of runs."""

from __future__ import annotations

from typing import NamedTuple


class RunFailure(NamedTuple):
    """Reason of a failed run in one line, and its traceback."""

    reason: str
    traceback: str


def reason(error: BaseException) -> str:
    """Return type and message of `error` in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
