"""Times at which a source's probes leave.

There are two lanes.  Urgent probes, from a source that has lost a path, wake every server on their
path.  Routine probes wake no server: each server handles them when it wakes for its hellos, so they
cost next to nothing and take half a hello interval a hop.

A late answer shows that the machine is slow.  Later probes then wait longer for answers (RFC 6298),
at least `timeout_s`.

Each lane has a limit on probes per second.  Without it, hundreds of daemons on one machine bring
each other down: failures cause probes, probes delay hellos, and missed hellos look like failures.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from weft.daemons.core.timers import RtoEstimator, TokenBucket
from weft.daemons.proxy.path_selection import ROUTINE, URGENT, CandidatePath, Paths

MOST_TIMEOUTS = 64  # ratio of the greatest to the least timeout
MOST_OVERDUE = 256  # probes


@dataclass(frozen=True, slots=True)
class Question:
    """A probe of `path`, one of `paths`, sent at `asked_s` under number `token`."""

    token: int
    paths: Paths
    path: CandidatePath
    asked_s: float
    urgent: bool


class Lane:
    """Probes of one urgency: those that wait to leave, and those without an answer yet.

    timeout_s: least timeout.
    """

    def __init__(self, bucket: TokenBucket, timeout_s: float) -> None:
        self.bucket = bucket
        self.timer = RtoEstimator(timeout_s, MOST_TIMEOUTS * timeout_s)
        self.timer.heard(0.0)
        self.waiting: deque[tuple[Paths, CandidatePath]] = deque()
        self.open: dict[int, Question] = {}  # by token, in the order of sending
        self.overdue: dict[int, float] = {}  # sending times of probes that timed out, by token

    @property
    def expires_s(self) -> float:
        """Return the time at which the oldest open probe times out."""
        return next(iter(self.open.values())).asked_s + self.timer.wait_s if self.open else inf

    def close(self, token: int) -> Question:
        """Return probe number `token`, which has timed out."""
        question = self.open.pop(token)
        self.overdue[token] = question.asked_s
        if len(self.overdue) > MOST_OVERDUE:
            del self.overdue[next(iter(self.overdue))]
        return question

    def answered(self, token: int, now: float) -> Question | None:
        """Record the round-trip time of probe number `token`; return the probe if it is open."""
        question = self.open.pop(token, None)
        asked_s = question.asked_s if question else self.overdue.pop(token, None)
        if asked_s is not None:
            self.timer.heard(now - asked_s)
        return question


class ProbeQueue:
    """Urgent and routine probes of one source."""

    def __init__(self, *, urgent: Lane, routine: Lane) -> None:
        self._lanes = {URGENT: urgent, ROUTINE: routine}
        self._token = 0

    def want(self, paths: Paths, candidates: Iterable[CandidatePath], *, urgent: bool) -> None:
        """Queue probes of `candidates`, except those with a probe of this urgency or higher."""
        urgency = URGENT if urgent else ROUTINE
        for path in candidates:
            if path.asking < urgency:
                path.asking = urgency
                self._lanes[urgency].waiting.append((paths, path))

    def forget(self, paths: Paths) -> None:
        """Drop all probes of `paths`."""
        for lane in self._lanes.values():
            lane.waiting = deque(entry for entry in lane.waiting if entry[0] is not paths)
            lane.open = {
                token: question
                for token, question in lane.open.items()
                if question.paths is not paths
            }

    def idle(self, now: float) -> bool:
        """Return True if no routine probe waits, and one could leave now."""
        routine = self._lanes[ROUTINE]
        return not routine.waiting and now >= routine.bucket.free_s

    def leaving(self, now: float) -> Question | None:
        """Return the probe that leaves now; None if there is none."""
        for urgency, lane in self._lanes.items():
            while lane.waiting:
                paths, path = lane.waiting[0]
                if path.asking == urgency and not lane.bucket.take(now):
                    break
                lane.waiting.popleft()
                if path.asking == urgency:  # otherwise answered, or urgent, in the meantime
                    self._token = self._token % 0xFFFFFFFF + 1
                    question = Question(self._token, paths, path, now, urgency == URGENT)
                    lane.open[self._token] = question
                    return question
        return None

    def answered(self, token: int, now: float) -> Question | None:
        """Close probe number `token` and return it; None if it was not open."""
        questions = [lane.answered(token, now) for lane in self._lanes.values()]
        return next(filter(None, questions), None)

    def expired(self, now: float) -> Question | None:
        """Close a probe that has timed out and return it; None if there is none."""
        for lane in self._lanes.values():
            if now >= lane.expires_s:
                return lane.close(next(iter(lane.open)))
        return None

    @property
    def deadline(self) -> float:
        """Return the time at which an urgent probe leaves or times out.

        Routine ones wait for the next hello.
        """
        urgent = self._lanes[URGENT]
        return min(urgent.bucket.free_s if urgent.waiting else inf, urgent.expires_s)
