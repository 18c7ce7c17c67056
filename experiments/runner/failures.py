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


def interrupt_behind(error: BaseException) -> BaseException | None:
    """Return the interrupt during whose clean-up `error` was raised, if any."""
    before = error.__context__
    while before and isinstance(before, Exception | SystemExit):  # a package may call sys.exit()
        before = before.__context__
    return before
