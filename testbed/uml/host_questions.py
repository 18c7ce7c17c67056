"""Exchange between a command under User-Mode Linux and the host while it runs.

A report is text for the program that started the command.  A question to the host takes no virtual
time: inside, ask() polls for the answer; outside, OutsideHost stops the whole kernel when it sees a
question, and continues it after the answer.  So no virtual time passes while a user types.

Reports and questions are written to descriptors that the command has from init (confinement.py); an
answer is a file in a folder that only the host can write to.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple, TextIO

from weft.testbed.linux import clock

FOLDER = Path("/run/uml")  # inside
QUESTIONS, REPORT = 8, 9  # descriptors of the command, as in uml-init.sh
ATTENDED = "WEFT_ATTENDED"  # environment variable of a command that may ask: the pace, or empty
INTERRUPT = "interrupt"  # files that mark each Ctrl-C of the user: interrupt.0, interrupt.1, ...
STEP_S = 0.05  # virtual time between looks for Ctrl-C and checks of the pace
NAME = re.compile(r"[0-9]{1,10}\.[0-9]{1,10}")
MOST_ANSWERS = 64  # that are kept
_numbers = count()


def report(text: str) -> None:
    """Write the report of this command, once."""
    with open(REPORT, "w", encoding="utf-8") as channel:
        channel.write(text)


def ask(**question: object) -> str:
    """Return the host's answer to a question; no virtual time passes."""
    name = f"{os.getpid()}.{next(_numbers)}"
    os.write(QUESTIONS, json.dumps({"name": name, **question}).encode() + b"\n")
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
    interrupts = 0
    with suppress(OSError):
        while os.getppid() == parent:
            if (FOLDER / f"{INTERRUPT}.{interrupts}").exists():
                interrupts += 1
                os.kill(parent, signal.SIGINT)
            if pace:
                ask(wants="time", real_s=(clock.monotonic() - begin_s) / pace)
            clock.sleep(STEP_S)
    os._exit(0)


class HostQuestion(NamedTuple):
    """A question from inside: for a line, or for `real_s` to have passed."""

    name: str
    real_s: float | None


def parsed(line: bytes) -> HostQuestion:
    """Return the question in a line; raise ChildProcessError if it is none."""
    with suppress(ValueError, RecursionError):
        match json.loads(line):
            case {"name": str(name), "wants": "line"} if NAME.fullmatch(name):
                return HostQuestion(name, None)
            case {"name": str(name), "wants": "time", "real_s": int() | float() as real_s} if (
                NAME.fullmatch(name) and math.isfinite(real_s)
            ):
                return HostQuestion(name, float(real_s))
    raise ChildProcessError(f"the command asked the host {line[:60]!r}, which is no question")


def _send(kernel: int, number: int) -> None:
    with suppress(ProcessLookupError):  # it has ended
        signal.pidfd_send_signal(kernel, number)


class OutsideHost:
    """Answers of the host.

    typed: source of lines.
    begin_s: real time of the first question, plus the time that users took.
    is_asked: whether a command inside asks; from then on it has the user's Ctrl-C.
    """

    def __init__(self, typed: TextIO) -> None:
        self.typed = typed
        self.begin_s: float | None = None
        self.is_asked = False
        self._interrupts = 0
        self._answers: deque[Path] = deque()

    def attend(
        self, questions: Iterable[bytes], kernel: int, common: Path, show: Callable[[], None]
    ) -> None:
        """Answer questions while the kernel stands still.

        Args:
            questions: lines.
            kernel: its pidfd.
            common: folder for the answers, which only the host can write to.
            show: copies the output so far.
        """
        for line in questions:
            question = parsed(line)
            self.is_asked = True
            _send(kernel, signal.SIGSTOP)
            try:
                show()
                self._leave(common, question.name, self._answer(question, common))
            finally:
                _send(kernel, signal.SIGCONT)

    def interrupt(self, common: Path) -> None:
        """Send SIGINT to the command inside."""
        (common / f"{INTERRUPT}.{self._interrupts}").touch()
        self._interrupts += 1

    def _leave(self, common: Path, name: str, answer: str) -> None:
        """Leave an answer where the command looks for it, and remove the oldest."""
        (common / f"answering.{name}").write_text(answer)
        (common / f"answering.{name}").rename(common / f"answer.{name}")
        self._answers.append(common / f"answer.{name}")
        if len(self._answers) > MOST_ANSWERS:
            self._answers.popleft().unlink(missing_ok=True)

    def _answer(self, question: HostQuestion, common: Path) -> str:
        if question.real_s is None:
            return self._line()
        try:
            self._wait(question.real_s)
        except KeyboardInterrupt:
            self.interrupt(common)
        return ""

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

    def _wait(self, real_s: float) -> None:
        """Wait until so much real time has passed since the first question, without users' time."""
        now_s = clock.monotonic()
        self.begin_s = self.begin_s or now_s - real_s
        clock.sleep(max(0.0, self.begin_s + real_s - now_s))
