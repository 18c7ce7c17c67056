"""When a source's questions about paths leave.

Urgent ones, of somebody whose path broke, leave at once, up to MOST_URGENT without an answer.  Others leave one at a
time, and between two of them there is a rest of REST times as long as the answer took: where hundreds of daemons share
a machine, or many share a slow link, all of them together then leave most of it to others, whatever they want to know.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf

from daemons.paths import Paths, Way

MOST_URGENT = 8
REST = 4.0


@dataclass(frozen=True, slots=True)
class Question:
    """How is `way`, one of `paths`?  asked_s: when it left."""

    paths: Paths
    way: Way
    asked_s: float
    urgent: bool


class Asking:
    """Questions that wait to leave, and those that have left, by number.

    patience_s: how long an answer may take.
    gap_s: at the least between two that are not urgent.
    """

    def __init__(self, *, patience_s: float, gap_s: float) -> None:
        self._patience_s = patience_s
        self._gap_s = gap_s
        self._urgent: deque[tuple[Paths, Way]] = deque()
        self._routine: deque[tuple[Paths, Way]] = deque()
        self._open: dict[int, Question] = {}
        self._open_urgent = 0
        self._token = 0
        self._rested_s = -inf

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
        for token in [token for token, question in self._open.items() if question.paths is paths]:
            self.answered(token, -inf)

    def waiting(self) -> int:
        """How many wait that are not urgent."""
        return len(self._routine)

    def leaving(self, now: float) -> Iterator[tuple[int, Question]]:
        """The questions that leave now, and their numbers."""
        while (urgent := bool(self._urgent) and self._open_urgent < MOST_URGENT) or self._may_routine(now):
            paths, way = (self._urgent if urgent else self._routine).popleft()
            self._token = self._token % 0xFFFFFFFF + 1
            question = self._open[self._token] = Question(paths, way, now, urgent)
            self._open_urgent += urgent
            yield self._token, question

    def _may_routine(self, now: float) -> bool:
        return bool(self._routine) and len(self._open) == self._open_urgent and now >= self._rested_s

    def answered(self, token: int, now: float) -> Question | None:
        """The question number `token`, which is answered now; None if that one is not open."""
        question = self._open.pop(token, None)
        if question and question.urgent:
            self._open_urgent -= 1
        elif question:
            self._rested_s = now + max(self._gap_s, REST * (now - question.asked_s))
        return question

    def expired(self, now: float) -> list[Question]:
        """The questions whose answers have taken too long."""
        late = [token for token, question in self._open.items() if question.asked_s + self._patience_s <= now]
        return [question for token in late if (question := self.answered(token, now))]

    @property
    def deadline(self) -> float:
        """When next a question may leave, or has waited too long for its answer."""
        oldest = next(iter(self._open.values()), None)
        leaves = self._rested_s if self._routine and len(self._open) == self._open_urgent else inf
        return min(leaves, oldest.asked_s + self._patience_s if oldest else inf)
