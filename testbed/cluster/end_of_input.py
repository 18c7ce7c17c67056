"""The end of a process whose input has ended, also amid a request."""

from __future__ import annotations

import os
import select
import signal
import threading

POLLRDHUP = 0x2000


def end_with_input() -> None:
    """Send SIGTERM to this process when its input has ended."""
    threading.Thread(target=_end, daemon=True).start()


def _end() -> None:
    poll = select.poll()
    poll.register(0, POLLRDHUP)
    poll.poll()
    os.kill(os.getpid(), signal.SIGTERM)


def ignore_end_of_input() -> None:
    """Have nothing interrupt what this process removes, which has begun."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
