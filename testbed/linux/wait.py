"""Wait for what is needed, never for a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(what: str, answer: Callable[[], T], *, timeout_s: float = 30.0, every_s: float = 0.005) -> T:
    """Return the first true `answer()`; TimeoutError tells `what` was awaited and the last answer."""
    end = time.monotonic() + timeout_s
    while not (got := answer()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: still {got!r} after {timeout_s:g} s")
        time.sleep(every_s)
    return got
