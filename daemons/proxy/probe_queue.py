"""When a source's questions about paths leave.

Two lanes.  Urgent questions, those of a source that has lost a path, wake every server on their way.  Routine ones wake
nobody: they lie at each server until it wakes for its hellos, so that they cost next to nothing and take half a hello
interval a hop.

Each lane has a budget, so many questions a second whatever has happened.  Failures make sources ask, asking takes time
from hellos, and hellos that are missed look like failures: without a limit to the second step, hundreds of daemons on
one machine bring each other down.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from weft.daemons.core.token_bucket import TokenBucket
from weft.daemons.proxy.path_selection import ROUTINE, URGENT, Paths, Way


@dataclass(frozen=True, slots=True)
class Question:
    """How is `way`, one of `paths`?  asked_s: when it left, under the number `token`."""

    token: int
    paths: Paths
    way: Way
    asked_s: float
    urgent: bool


class Lane:
    """Questions that are equally urgent: those that wait to leave, and those that have left.

    timeout_s: how long an answer may take.
    """

    def __init__(self, bucket: TokenBucket, timeout_s: float) -> None:
        self.bucket = bucket
        self.timeout_s = timeout_s
        self.waiting: deque[tuple[Paths, Way]] = deque()
        self.open: dict[int, Question] = {}  # by token, those that left first come first

    @property
    def expires_s(self) -> float:
        """When the first that is open has waited too long."""
        return next(iter(self.open.values())).asked_s + self.timeout_s if self.open else inf


class ProbeQueue:
    """Questions of one source, `urgent` ones and `routine` ones."""

    def __init__(self, *, urgent: Lane, routine: Lane) -> None:
        self._lanes = {URGENT: urgent, ROUTINE: routine}
        self._token = 0

    def want(self, paths: Paths, ways: Iterable[Way], *, urgent: bool) -> None:
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
            lane.open = {token: each for token, each in lane.open.items() if each.paths is not paths}

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
                    question = lane.open[self._token] = Question(self._token, paths, way, now, how == URGENT)
                    return question
        return None

    def answered(self, token: int) -> Question | None:
        """The question number `token`, which is open no more; None if it was not."""
        for lane in self._lanes.values():
            if token in lane.open:
                return lane.open.pop(token)
        return None

    def expired(self, now: float) -> Question | None:
        """A question whose answer takes too long; it is open no more."""
        for lane in self._lanes.values():
            if now >= lane.expires_s:
                return self.answered(next(iter(lane.open)))
        return None

    @property
    def deadline(self) -> float:
        """When next an urgent question may leave, or has waited too long for its answer; what is routine can wait for
        the next hello."""
        urgent = self._lanes[URGENT]
        return min(urgent.bucket.free_s if urgent.waiting else inf, urgent.expires_s)
