"""Asking a path how it is.

A question goes from server to server as a packet on that path would, collects the greatest load of
the ports that it leaves by, and is answered by the destination; the answer goes back by the servers
visited.  A server that has no way on answers in its stead that the path is broken.

Path state in tables on the way, at no extra cost (CCRDN 5.4, third aspect), serves twice.  Every
server remembers for a while whose questions went on by which of its hops.  When a hop dies it tells
each of those sources, once: a source knows itself which of its paths lead over that hop.  And,
where `table_s` says so, the server by which questions enter a proxy's copy remembers for so long
that the way through that copy is broken, as an answer said that passed it; who asks meanwhile is
told by it at once.

There is a limit to that, too, and one to what is remembered: a source beyond it finds out by a
packet that is refused, or by asking.

A source that is told so tells the destination, by another path: a link that one end has lost is
lost to both, but the other end may notice a hello interval later, and only then tell those whose
answers came that way.

Bad news, and questions that are urgent with their answers, wake the server that they are passed to;
to be woken is what they cost, where hundreds of daemons share a machine.  So a server has a budget
of how often it wakes others; beyond it they travel like routine ones, which lie at each server
until it wakes for its hellos.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import inf

from weft.daemons.core import wire
from weft.daemons.core.actions import Hop, Send
from weft.daemons.core.token_bucket import TokenBucket

# sources for each hop, and broken paths: the first that came are forgotten first
MOST_REMEMBERED = 1024
AWAKE_S = 0.001  # who was woken so long ago at most is not woken again


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """What became of our question number `token`: whether the path to server `destination` by way
    of `way` is connected, and the greatest load on it."""

    destination: int
    way: int
    token: int
    connected: bool
    load: int


@dataclass(frozen=True, slots=True)
class HopLost:
    """The hop from server `near` to server `far`, which a path of ours led over, is dead; says
    server `by`."""

    near: int
    far: int
    by: int


ProbeOutcome = Send | ProbeAnswer | HopLost


class Probes:
    """The questions and answers that pass `node`.

    next_hop: (destination, way) -> where a packet goes from here.
    hop_to: neighbour -> how to reach it; ValueError if it is none.
    lives: whether a hop does.
    load: of a port.
    wakes: how often other servers may be woken.
    news: how many sources may be told that a hop died.
    remember_s: how long, at the most, sources go on sending after a question without asking again.
    stretch: (destination, way, server) -> what the path through a proxy's copy is the same for,
        None outside it.
    table_s: how long such a path is taken to be broken; 0: there is no table.
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
        stretch: Callable[[int, int, int], Hashable] = lambda destination, way, server: None,
        table_s: float = 0.0,
    ) -> None:
        self.node = node
        self._next_hop = next_hop
        self._hop_to = hop_to
        self._lives = lives
        self._load = load
        self._wakes, self._news = wakes, news
        self._woken_s: dict[Hop, float] = {}
        self._remember_s = remember_s
        self._stretch, self._table_s = stretch, table_s
        # until when, of paths through the copies that begin here
        self._broken_s: dict[Hashable, float] = {}
        # source -> until when, by whom it came
        self._passed: dict[Hop, dict[int, tuple[float, tuple[int, ...]]]] = {}

    def ask(
        self, destination: int, way: int, token: int, now: float, *, urgent: bool
    ) -> list[ProbeOutcome]:
        """Ask how the path to `destination`, another server, by way of `way` is."""
        probe = wire.Probe(
            self.node, self.node, self.node, destination, token, way, 0, wire.ASKING, urgent, ()
        )
        return self._on(probe, now)

    def receive(self, message: wire.Probe | wire.HopDied, now: float) -> list[ProbeOutcome]:
        """A neighbour passes `message` on."""
        if message.target != self.node:
            return []
        if isinstance(message, wire.HopDied) or message.verdict != wire.ASKING:
            return self._back(message, now)
        if message.destination == self.node:
            return self._back(
                message._replace(visited=(*message.visited, self.node), verdict=wire.CONNECTED), now
            )
        return self._on(message, now)

    def hop_died(self, hop: Hop, now: float) -> list[ProbeOutcome]:
        """Tell those who had a path over `hop`."""
        told: list[ProbeOutcome] = []
        for until_s, visited in self._passed.pop(hop, {}).values():
            if now < until_s and self._news.take(now):
                told += self._back(
                    wire.HopDied(self.node, self.node, self.node, hop.node, visited), now
                )
        return told

    def tell(self, path: Sequence[int], hop: tuple[int, int], now: float) -> list[ProbeOutcome]:
        """Tell the last server of `path`, which begins here, that `hop` is dead, as though it had
        asked along it."""
        if not self._news.take(now):
            return []
        return self._back(wire.HopDied(self.node, self.node, *hop, tuple(reversed(path))), now)

    def _on(self, probe: wire.Probe, now: float) -> list[ProbeOutcome]:
        hop = self._next_hop(probe.destination, probe.way)
        visited = (*probe.visited, self.node)
        if not self._lives(hop) or now < self._broken_s.get(self._entered(probe, visited), -inf):
            return self._back(probe._replace(visited=visited, verdict=wire.BROKEN), now)
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
        """What the path through a proxy's copy is the same for, if the last of `visited` is the
        first server there."""
        if not self._table_s or len(visited) < 2:
            return None
        before, here = (
            self._stretch(probe.destination, probe.way, server) for server in visited[-2:]
        )
        return None if before else here

    def _learn(self, answer: wire.Probe, at: int, now: float) -> None:
        """Remember what an answer that passes says of the path through a copy that begins at its
        server number `at`."""
        path, last = self._entered(answer, answer.visited[: at + 1]), answer.visited[-1]
        if (
            path
            and last != self.node
            and self._stretch(answer.destination, answer.way, last) == path
        ):
            self._broken_s = {
                each: until_s for each, until_s in self._broken_s.items() if until_s > now
            }
            if len(self._broken_s) < MOST_REMEMBERED:
                self._broken_s[path] = now + self._table_s

    def _back(self, message: wire.Probe | wire.HopDied, now: float) -> list[ProbeOutcome]:
        """One server back towards the source, or the news for us if that is who we are."""
        try:
            at = message.visited.index(self.node)
            if isinstance(message, wire.Probe) and message.verdict == wire.BROKEN:
                self._learn(message, at, now)
            if at:
                return [self._pass(message, self._hop_to(message.visited[at - 1]), now)]
        except ValueError:  # we are not on the path that it names, or have no such neighbour
            return []
        if isinstance(message, wire.HopDied):
            return [HopLost(message.near, message.far, message.visited[-1])]
        connected = message.verdict == wire.CONNECTED
        return [
            ProbeAnswer(message.destination, message.way, message.token, connected, message.load)
        ]
