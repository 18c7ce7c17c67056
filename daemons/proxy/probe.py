"""Path probes: is a path up, and what is the highest load on it?

A probe travels as a packet on that path would, and collects the greatest load of its output ports.
The destination answers, back over the visited servers.  A server whose next hop is dead answers in
its place that the path is broken.

Servers keep state of the probes that pass (CCRDN 5.4, third aspect).  When a hop dies, a server
tells each source whose probes went on over it, once.  With `table_s`, the first server of a proxy's
sub-network remembers that the path through it is broken, and answers later probes at once.  Both
tables and the rate of news are bounded; other sources learn by a refused packet or their own probe.

A source that learns of a dead link tells the destination over another path, because the far end of
the link may notice it a hello interval later.

News and urgent probes wake the next server, which is their main cost with hundreds of daemons on a
machine.  Beyond `wakes` they travel like routine probes, handled when a server wakes for hellos.

A source's probes leave in two lanes.  Urgent probes, from a source that has lost a path, wake every
server on their path.  Routine probes wake no server: each server handles them when it wakes for its
hellos, so they cost next to nothing and take half a hello interval a hop.

A late answer shows that the machine is slow.  Later probes then wait longer for answers (RFC 6298),
at least `timeout_s`.

Each lane has a limit on probes per second.  Without it, hundreds of daemons on one machine bring
each other down: failures cause probes, probes delay hellos, and missed hellos look like failures.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import inf

from weft.daemons.core import wire
from weft.daemons.core.actions import Hop, Send
from weft.daemons.core.timers import RtoEstimator, TokenBucket
from weft.daemons.proxy.path_selection import ROUTINE, URGENT, CandidatePath, Paths

MOST_REMEMBERED = 1024  # sources for each hop, and broken paths; the oldest are dropped first
AWAKE_S = 0.001  # time for which a server that was woken counts as awake
MOST_TIMEOUTS = 64  # ratio of the greatest to the least timeout
MOST_OVERDUE = 256  # probes


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """Answer to our probe `token`: is path number `path` connected, and what is its load?"""

    destination: int
    path: int
    token: int
    connected: bool
    load: int


@dataclass(frozen=True, slots=True)
class HopLost:
    """Server `by` reports that the hop from server `near` to server `far` is dead.

    One of our paths uses it.
    """

    near: int
    far: int
    by: int


ProbeOutcome = Send | ProbeAnswer | HopLost


class Probes:
    """Probes and answers that pass `node`.

    next_hop: (destination, path number) -> next hop of a packet at this server.
    hop_to: neighbour -> hop; ValueError if it is no neighbour.
    lives: hop -> True if it is alive.
    load: port -> load.
    wakes: limit on how often other servers are woken.
    news: limit on sources that are told of a dead hop.
    remember_s: maximum time between a source's probe and its last packet without another probe.
    stretch: (destination, path number, server) -> key of the path through the proxy's sub-network;
        None outside it.
    table_s: time for which such a path counts as broken; 0: no table.
    """

    def __init__(
        self,
        node: int,
        *,
        next_hop: Callable[[int, int], Hop],
        hop_to: Callable[[int], Hop],
        lives: Callable[[Hop], bool],
        load: Callable[[int], int],
        wakes: TokenBucket,
        news: TokenBucket,
        remember_s: float,
        stretch: Callable[[int, int, int], Hashable] = lambda destination, path, server: None,
        table_s: float = 0.0,
    ) -> None:
        self.node = node
        self._next_hop = next_hop
        self._hop_to = hop_to
        self._lives = lives
        self._load = load
        self._wakes = wakes
        self._news = news
        self._woken_s: dict[Hop, float] = {}
        self._remember_s = remember_s
        self._stretch = stretch
        self._table_s = table_s
        # by key of a path through the sub-network that begins here: end of its time in the table
        self._broken_until_s: dict[Hashable, float] = {}
        # by hop and source: end of the source's time in the table, servers that its probe visited
        self._passed: dict[Hop, dict[int, tuple[float, tuple[int, ...]]]] = {}

    def ask(
        self, destination: int, path: int, token: int, now: float, *, urgent: bool
    ) -> list[ProbeOutcome]:
        """Probe path number `path` to `destination`, another server."""
        probe = wire.Probe(
            self.node, self.node, self.node, destination, token, path, 0, wire.ASKING, urgent, ()
        )
        return self._forward(probe, now)

    def receive(self, message: wire.Probe | wire.HopDied, now: float) -> list[ProbeOutcome]:
        """Handle `message` from a neighbour."""
        if message.target != self.node:
            return []
        if isinstance(message, wire.HopDied) or message.verdict != wire.ASKING:
            return self._return(message, now)
        if message.destination == self.node:
            visited = (*message.visited, self.node)
            return self._return(message._replace(visited=visited, verdict=wire.CONNECTED), now)
        return self._forward(message, now)

    def hop_died(self, hop: Hop, now: float) -> list[ProbeOutcome]:
        """Tell the sources whose paths use `hop`."""
        outcomes: list[ProbeOutcome] = []
        for until_s, visited in self._passed.pop(hop, {}).values():
            if now < until_s and self._news.take(now):
                news = wire.HopDied(self.node, self.node, self.node, hop.node, visited)
                outcomes += self._return(news, now)
        return outcomes

    def tell(self, path: Sequence[int], hop: tuple[int, int], now: float) -> list[ProbeOutcome]:
        """Tell the last server of `path`, which begins here, that `hop` is dead.

        The message is as if the server's own probe had passed here.
        """
        if not self._news.take(now):
            return []
        return self._return(wire.HopDied(self.node, self.node, *hop, tuple(reversed(path))), now)

    def _forward(self, probe: wire.Probe, now: float) -> list[ProbeOutcome]:
        hop = self._next_hop(probe.destination, probe.way)
        visited = (*probe.visited, self.node)
        broken_until_s = self._broken_until_s.get(self._entered(probe, visited), -inf)
        if not self._lives(hop) or now < broken_until_s:
            return self._return(probe._replace(visited=visited, verdict=wire.BROKEN), now)
        passed = self._passed.setdefault(hop, {})
        passed.pop(visited[0], None)
        passed[visited[0]] = (now + self._remember_s, visited)
        if len(passed) > MOST_REMEMBERED:
            del passed[next(iter(passed))]
        load = min(max(probe.load, self._load(hop.port)), 0xFFFFFFFF)
        return [self._pass(probe._replace(visited=visited, load=load), hop, now)]

    def _pass(self, message: wire.Probe | wire.HopDied, hop: Hop, now: float) -> Send:
        urgent = isinstance(message, wire.HopDied) or message.urgent
        payload = wire.encode(message._replace(sender=self.node, target=hop.node))
        return Send(hop.port, payload, routine=not (urgent and self._may_wake(hop, now)))

    def _may_wake(self, hop: Hop, now: float) -> bool:
        if now < self._woken_s.get(hop, -inf) + AWAKE_S:
            return True
        if not self._wakes.take(now):
            return False
        self._woken_s[hop] = now
        return True

    def _entered(self, probe: wire.Probe, visited: tuple[int, ...]) -> Hashable:
        """Return the key of the path through the proxy's sub-network.

        It is None unless the last of `visited` is its first server there.
        """
        if not self._table_s or len(visited) < 2:
            return None
        previous, last = (
            self._stretch(probe.destination, probe.way, server) for server in visited[-2:]
        )
        return None if previous else last

    def _learn(self, answer: wire.Probe, position: int, now: float) -> None:
        """Remember the broken path of an answer if it enters a sub-network here.

        `position` is the place of this server on it, and it must break within.
        """
        path = self._entered(answer, answer.visited[: position + 1])
        last = answer.visited[-1]
        if not path or last == self.node:
            return
        if self._stretch(answer.destination, answer.way, last) != path:
            return
        self._broken_until_s = {
            known: until_s for known, until_s in self._broken_until_s.items() if until_s > now
        }
        if len(self._broken_until_s) < MOST_REMEMBERED:
            self._broken_until_s[path] = now + self._table_s

    def _return(self, message: wire.Probe | wire.HopDied, now: float) -> list[ProbeOutcome]:
        """Send `message` one server back towards the source; at the source, return its content."""
        try:
            position = message.visited.index(self.node)
            if isinstance(message, wire.Probe) and message.verdict == wire.BROKEN:
                self._learn(message, position, now)
            if position:
                return [self._pass(message, self._hop_to(message.visited[position - 1]), now)]
        except ValueError:  # not on the path of the message, or no such neighbour
            return []
        if isinstance(message, wire.HopDied):
            return [HopLost(message.near, message.far, message.visited[-1])]
        connected = message.verdict == wire.CONNECTED
        return [
            ProbeAnswer(message.destination, message.way, message.token, connected, message.load)
        ]


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
