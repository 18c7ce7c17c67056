"""A run that could not be measured."""

from __future__ import annotations

from typing import NamedTuple


class RunFailure(NamedTuple):
    """Why in one line, and where in the code."""

    reason: str
    traceback: str


def reason(error: BaseException) -> str:
    """What went wrong, in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
