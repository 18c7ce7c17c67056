"""When a source's questions about paths leave.

One at a time; and between two of them there is a rest in proportion to the time that the answer took.  Where hundreds
of daemons share a machine, or many share a slow link, all of them together then leave room for others, whatever they
want to know: answers take the longer the less room there is.  Questions of those whose path broke go first, and rest
less.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from daemons.paths import Paths, Way

REST, URGENT_REST = 4.0, 1.0  # times as long as the answer took


@dataclass(frozen=True, slots=True)
class Question:
    """How is `way`, one of `paths`?  asked_s: when it left, under the number `token`."""

    token: int
    paths: Paths
    way: Way
    asked_s: float
    urgent: bool


class Asking:
    """Questions that wait to leave, and the one that has left.

    patience_s: how long an answer may take.
    gap_s: at the least between two that are not urgent.
    """

    def __init__(self, *, patience_s: float, gap_s: float) -> None:
        self._patience_s = patience_s
        self._gap_s = gap_s
        self._urgent: deque[tuple[Paths, Way]] = deque()
        self._routine: deque[tuple[Paths, Way]] = deque()
        self._open: Question | None = None
        self._token = 0
        self._rested_s = self._urgent_rested_s = -inf

    def want(self, paths: Paths, ways: Iterable[Way], *, urgent: bool) -> None:
        """Ask those of `ways` that are not being asked."""
        for way in ways:
            if not way.asking:
                way.asking = True
                (self._urgent if urgent else self._routine).append((paths, way))

    def forget(self, paths: Paths) -> None:
        """Nobody wants to know of `paths` any more."""
        for queue in (self._urgent, self._routine):
            for entry in [entry for entry in queue if entry[0] is paths]:
                queue.remove(entry)
        if self._open and self._open.paths is paths:
            self._open = None

    def waiting(self) -> bool:
        """Whether a question waits that is not urgent."""
        return bool(self._routine)

    def leaving(self, now: float) -> Question | None:
        """The question that leaves now, if any."""
        if self._open or now < self._leaves_s():
            return None
        urgent = bool(self._urgent)
        paths, way = (self._urgent if urgent else self._routine).popleft()
        if not way.asking:  # it has become known meanwhile
            return self.leaving(now)
        self._token = self._token % 0xFFFFFFFF + 1
        self._open = Question(self._token, paths, way, now, urgent)
        return self._open

    def _leaves_s(self) -> float:
        return self._urgent_rested_s if self._urgent else self._rested_s if self._routine else inf

    def answered(self, token: int, now: float) -> Question | None:
        """The question number `token`, which is answered now; None if it is not the open one."""
        question = self._open
        if question is None or question.token != token:
            return None
        took_s = now - question.asked_s
        self._urgent_rested_s = now + URGENT_REST * took_s
        self._rested_s = now + max(self._gap_s, REST * took_s)
        self._open = None
        return question

    def expired(self, now: float) -> Question | None:
        """The question whose answer takes too long, if it does; it is not open any more."""
        question = self._open
        if question is None or now < question.asked_s + self._patience_s:
            return None
        return self.answered(question.token, now)

    @property
    def deadline(self) -> float:
        """When next a question may leave, or has waited too long for its answer."""
        return self._open.asked_s + self._patience_s if self._open else self._leaves_s()
