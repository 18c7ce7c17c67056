"""What a command under the virtual clock asks of the host outside, while its clock stands still.

A question is a file in the folder that host and kernel have in common.  Inside, ask() looks for the
answer again and again, which takes no time there.  Outside, Host stops the whole kernel as soon as
it sees a question, and lets it go on when it has answered.  So no virtual time passes while
a user types, and real time can be waited for.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TextIO

from weft.testbed.linux import clock

FOLDER = Path("/run/uml")  # inside
ATTENDED = "WEFT_ATTENDED"  # set in the environment of a command that may ask; the pace, or nothing
INTERRUPT = "interrupt"  # file that marks a Ctrl-C of the user
STEP_S = 0.05  # of virtual time, after which Ctrl-C and the pace are looked after
_numbers = count()


def ask(**question: object) -> str:
    """The host's answer; no time passes."""
    name = f"{os.getpid()}.{next(_numbers)}"
    (FOLDER / f"asking.{name}").write_text(json.dumps(question))
    (FOLDER / f"asking.{name}").rename(FOLDER / f"ask.{name}")
    answer = FOLDER / f"answer.{name}"
    while not answer.exists():
        pass
    return answer.read_text()


class Terminal:
    """Standard input that is the host's, a line at a time."""

    def __init__(self) -> None:
        self._never_ready = os.pipe()

    def fileno(self) -> int:
        """A descriptor at which nothing ever arrives: lines are asked for."""
        return self._never_ready[0]

    def readline(self) -> str:
        """Return the user's line, with its end of line; "" if there is no more."""
        sys.stdout.flush()
        sys.stderr.flush()
        return ask(wants="line")


def keep_time(pace: float | None) -> None:
    """Start a process that passes Ctrl-C on to this one, and keeps virtual time at most `pace`
    times as fast as real time; it ends with this one.
    """
    parent = os.getpid()
    if os.fork():
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    begin_s = clock.monotonic()
    with suppress(OSError):
        while os.getppid() == parent:
            if (FOLDER / INTERRUPT).exists():
                (FOLDER / INTERRUPT).unlink()
                os.kill(parent, signal.SIGINT)
            if pace:
                ask(wants="time", real_s=(clock.monotonic() - begin_s) / pace)
            clock.sleep(STEP_S)
    os._exit(0)


class OutsideHost:
    """Answers from outside: lines from `typed`, and real time."""

    def __init__(self, typed: TextIO) -> None:
        self.typed = typed
        # real time of the first question, later by all the time that people took
        self.begin_s: float | None = None

    def attend(self, common: Path, show: Callable[[], None]) -> None:
        """Answer what is asked in the folder `common`; `show` passes on what has been printed."""
        for question in sorted(common.glob("ask.*")):
            kernel = int((common / "uml" / "pid").read_text())
            os.kill(kernel, signal.SIGSTOP)
            show()
            asked = json.loads(question.read_text())
            answer = self._line() if asked["wants"] == "line" else self._time(asked["real_s"])
            question.unlink()
            name = question.name.removeprefix("ask.")
            (common / f"answering.{name}").write_text(answer)
            (common / f"answering.{name}").rename(common / f"answer.{name}")
            os.kill(kernel, signal.SIGCONT)

    def interrupt(self, common: Path) -> None:
        """Let the command inside have a SIGINT."""
        (common / INTERRUPT).touch()

    def _line(self) -> str:
        """What is typed; Ctrl-C begins another line."""
        began_s = clock.monotonic()
        try:
            return self.typed.readline()
        except KeyboardInterrupt:
            return "\n"
        finally:
            if self.begin_s is not None:
                self.begin_s += clock.monotonic() - began_s

    def _time(self, real_s: float) -> str:
        """Wait until so much real time has passed since the first time that this was asked,
        people's time left out.
        """
        now_s = clock.monotonic()
        self.begin_s = self.begin_s or now_s - real_s
        clock.sleep(max(0.0, self.begin_s + real_s - now_s))
        return ""
