"""Work that Ctrl-C and SIGTERM may not break off."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STOPS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Deliver SIGINT and SIGTERM after the block.

    Handlers run in the main thread, whichever thread the system chose, so that the handlers are
    replaced, and not the thread's mask.  Other threads are not interrupted anyway.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    # None: a handler that Python did not install, and cannot install again
    previous = {number: signal.getsignal(number) for number in STOPS}
    replaced = {number: handler for number, handler in previous.items() if handler is not None}
    for number in replaced:
        signal.signal(number, lambda number, frame: arrived.append(number))
    try:
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)
        for arrival in dict.fromkeys(arrived):
            signal.raise_signal(arrival)
