"""Other sides that are gone: a controller whose input has ended, and machines that are silent.

The end of its input ends an agent, also amid a request.  Silence is measured in time in which this
process could have heard the other machine.  A process that does not run, because it is stopped or
waits for a processor, hears nothing.  That is its own lateness, and no silence of others.  A turn
of its loop that comes late counts as one that comes in time.  node_daemon/watchdog.py judges
processes of this machine likewise, by the kernel's account of them; no such account of another
machine can be read here.
"""

from __future__ import annotations

import os
import select
import signal
import threading

POLLRDHUP = 0x2000
LATE_S = 2.0  # a machine that is silent for longer is late
GONE_S = 10.0  # one that is silent for longer does not come back


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


class Leases:
    """The silences of others, by name, since the last message of each.

    longest_pause_s: the longest time for which this process did not run.
    """

    def __init__(self, now_s: float, turn_s: float) -> None:
        """Begin at `now_s`; turns are due every `turn_s`."""
        self._turned_s = now_s
        self._turn_s = turn_s
        self._silent_s: dict[str, float] = {}
        self.longest_pause_s = 0.0

    def renew(self, name: str) -> None:
        """End the silence of `name`, which is known from now on."""
        self._silent_s[name] = 0.0

    def forget(self, name: str) -> None:
        """Know no silence of `name`."""
        self._silent_s.pop(name, None)

    def turn(self, now_s: float) -> None:
        """Count the time since the last turn, but no more than one turn takes."""
        passed_s = now_s - self._turned_s
        self._turned_s = now_s
        self.longest_pause_s = max(self.longest_pause_s, passed_s - self._turn_s)
        for name in self._silent_s:
            self._silent_s[name] += min(passed_s, self._turn_s)

    def silent(self, longest_s: float) -> set[str]:
        """Return those who have been silent for more than `longest_s`."""
        return {name for name, silent_s in self._silent_s.items() if silent_s > longest_s}
