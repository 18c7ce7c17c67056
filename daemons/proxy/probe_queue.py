"""When a source's questions about paths leave.

Two lanes.  Urgent questions, those of a source that has lost a path, wake every server on their
way.  Routine ones wake nobody: they lie at each server until it wakes for its hellos, so that they
cost next to nothing and take half a hello interval a hop.

An answer that comes too late shows that the machine is slow: questions that leave from then on wait
as long as answers take (RFC 6298), at least `timeout_s`.

Each lane has a budget, so many questions a second whatever has happened.  Failures make sources
ask, asking takes time from hellos, and hellos that are missed look like failures: without a limit
to the second step, hundreds of daemons on one machine bring each other down.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from weft.daemons.core.rto_estimator import RtoEstimator
from weft.daemons.core.token_bucket import TokenBucket
from weft.daemons.proxy.path_selection import ROUTINE, URGENT, CandidatePath, Paths

MOST_TIMEOUTS = 64  # times the least time-out
MOST_OVERDUE = 256  # questions


@dataclass(frozen=True, slots=True)
class Question:
    """How is `way`, one of `paths`?  asked_s: when it left, under the number `token`."""

    token: int
    paths: Paths
    way: CandidatePath
    asked_s: float
    urgent: bool


class Lane:
    """Questions that are equally urgent: those that wait to leave, and those that have left.

    timeout_s: how long an answer may take at the least.
    """

    def __init__(self, bucket: TokenBucket, timeout_s: float) -> None:
        self.bucket = bucket
        self.timer = RtoEstimator(timeout_s, MOST_TIMEOUTS * timeout_s)
        self.timer.heard(0.0)
        self.waiting: deque[tuple[Paths, CandidatePath]] = deque()
        self.open: dict[int, Question] = {}  # by token, those that left first come first
        # by token: when those left that have waited too long for an answer
        self.overdue: dict[int, float] = {}

    @property
    def expires_s(self) -> float:
        """When the first that is open has waited too long."""
        return next(iter(self.open.values())).asked_s + self.timer.wait_s if self.open else inf

    def close(self, token: int) -> Question:
        """Return question number `token`, to which no answer has come in time."""
        question = self.open.pop(token)
        self.overdue[token] = question.asked_s
        if len(self.overdue) > MOST_OVERDUE:
            del self.overdue[next(iter(self.overdue))]
        return question

    def answered(self, token: int, now: float) -> Question | None:
        """Learn how long the answer to question number `token` took; the question if it is still
        open."""
        question = self.open.pop(token, None)
        asked_s = question.asked_s if question else self.overdue.pop(token, None)
        if asked_s is not None:
            self.timer.heard(now - asked_s)
        return question


class ProbeQueue:
    """Questions of one source, `urgent` ones and `routine` ones."""

    def __init__(self, *, urgent: Lane, routine: Lane) -> None:
        self._lanes = {URGENT: urgent, ROUTINE: routine}
        self._token = 0

    def want(self, paths: Paths, ways: Iterable[CandidatePath], *, urgent: bool) -> None:
        """Ask those of `ways` that are not being asked, or not as urgently."""
        how = URGENT if urgent else ROUTINE
        for way in ways:
            if way.asking < how:
                way.asking = how
                self._lanes[how].waiting.append((paths, way))

    def forget(self, paths: Paths) -> None:
        """Nobody wants to know of `paths` any more."""
        for lane in self._lanes.values():
            lane.waiting = deque(entry for entry in lane.waiting if entry[0] is not paths)
            lane.open = {
                token: each for token, each in lane.open.items() if each.paths is not paths
            }

    def idle(self, now: float) -> bool:
        """Whether another routine question could leave now, and none waits."""
        routine = self._lanes[ROUTINE]
        return not routine.waiting and now >= routine.bucket.free_s

    def leaving(self, now: float) -> Question | None:
        """The question that leaves now, if any."""
        for how, lane in self._lanes.items():
            while lane.waiting:
                paths, way = lane.waiting[0]
                if way.asking == how and not lane.bucket.take(now):
                    break
                lane.waiting.popleft()
                if way.asking == how:  # else it has become known, or urgent, meanwhile
                    self._token = self._token % 0xFFFFFFFF + 1
                    question = lane.open[self._token] = Question(
                        self._token, paths, way, now, how == URGENT
                    )
                    return question
        return None

    def answered(self, token: int, now: float) -> Question | None:
        """Return question number `token`, which is open no more; None if it was not."""
        questions = [lane.answered(token, now) for lane in self._lanes.values()]
        return next(filter(None, questions), None)

    def expired(self, now: float) -> Question | None:
        """A question whose answer takes too long; it is open no more."""
        for lane in self._lanes.values():
            if now >= lane.expires_s:
                return lane.close(next(iter(lane.open)))
        return None

    @property
    def deadline(self) -> float:
        """When next an urgent question may leave, or has waited too long for its answer; what is
        routine can wait for the next hello."""
        urgent = self._lanes[URGENT]
        return min(urgent.bucket.free_s if urgent.waiting else inf, urgent.expires_s)
