"""Questions of a command under the virtual clock to the host outside, whose answers take no time.

A question is a file in the folder that kernel and host share.  Inside, ask() polls for the answer,
which takes no virtual time.  Outside, OutsideHost stops the whole kernel when it sees a question,
and continues it after the answer.  So no virtual time passes while a user types.
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
ATTENDED = "WEFT_ATTENDED"  # environment variable of a command that may ask: the pace, or empty
INTERRUPT = "interrupt"  # file that marks a Ctrl-C of the user
STEP_S = 0.05  # virtual time between looks for Ctrl-C and checks of the pace
_numbers = count()


def ask(**question: object) -> str:
    """Return the host's answer to a question; no virtual time passes."""
    name = f"{os.getpid()}.{next(_numbers)}"
    (FOLDER / f"asking.{name}").write_text(json.dumps(question))
    (FOLDER / f"asking.{name}").rename(FOLDER / f"ask.{name}")
    answer = FOLDER / f"answer.{name}"
    while not answer.exists():
        pass
    return answer.read_text()


class Terminal:
    """The host's standard input, line by line."""

    def __init__(self) -> None:
        self._never_ready = os.pipe()

    def fileno(self) -> int:
        """Return a descriptor that is never readable, because lines are asked for."""
        return self._never_ready[0]

    def readline(self) -> str:
        """Return the user's line, with its end of line; "" if there is no more."""
        sys.stdout.flush()
        sys.stderr.flush()
        return ask(wants="line")


def keep_time(pace: float | None) -> None:
    """Start a process that passes Ctrl-C on to this one and limits the pace; it ends with this one.

    pace: virtual time runs at most so many times as fast as real time; None: without limit.
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
    """Answers of the host.

    typed: source of lines.
    begin_s: real time of the first question, plus the time that users took.
    """

    def __init__(self, typed: TextIO) -> None:
        self.typed = typed
        self.begin_s: float | None = None

    def attend(self, common: Path, show: Callable[[], None]) -> None:
        """Answer the questions in the folder `common`; `show` copies the output so far."""
        for question in sorted(common.glob("ask.*")):
            kernel = int((common / "uml" / "pid").read_text())
            os.kill(kernel, signal.SIGSTOP)
            show()
            content = json.loads(question.read_text())
            is_line = content["wants"] == "line"
            answer = self._line() if is_line else self._time(content["real_s"])
            question.unlink()
            name = question.name.removeprefix("ask.")
            (common / f"answering.{name}").write_text(answer)
            (common / f"answering.{name}").rename(common / f"answer.{name}")
            os.kill(kernel, signal.SIGCONT)

    def interrupt(self, common: Path) -> None:
        """Send SIGINT to the command inside."""
        (common / INTERRUPT).touch()

    def _line(self) -> str:
        """Return the next line of the user; an empty one after Ctrl-C."""
        began_s = clock.monotonic()
        try:
            return self.typed.readline()
        except KeyboardInterrupt:
            return "\n"
        finally:
            if self.begin_s is not None:
                self.begin_s += clock.monotonic() - began_s

    def _time(self, real_s: float) -> str:
        """Wait until so much real time has passed since the first question, without users' time."""
        now_s = clock.monotonic()
        self.begin_s = self.begin_s or now_s - real_s
        clock.sleep(max(0.0, self.begin_s + real_s - now_s))
        return ""
