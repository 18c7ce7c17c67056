"""Asking a path how it is.

A question goes from server to server as a packet on that path would, collects the greatest load of the ports that it
leaves by, and is answered by the destination; the answer goes back by the servers visited.  A server that has no way on
answers in its stead that the path is broken.

Every server remembers for a while whose questions went on by which of its hops (CCRDN 5.4, third aspect: path state in
tables on the way, at no extra cost).  When a hop dies it tells each of those sources, once: a source knows itself which
of its paths lead over that hop.

There is a limit to that, too: a source beyond it finds out by a packet that is refused, or by asking.

A source that is told so tells the destination, by another path: a link that one end has lost is lost to both, but the
other end may notice a hello interval later, and only then tell those whose answers came that way.

Bad news, and questions that are urgent with their answers, wake the server that they are passed to; to be woken is what
they cost, where hundreds of daemons share a machine.  So a server has a budget of how often it wakes others; beyond it
they travel like routine ones, which lie at each server until it wakes for its hellos.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

from daemons import wire
from daemons.budget import Budget
from daemons.protocol import Hop, Send

MOST_SERVERS = 64  # on a path: what has come further runs in circles
AWAKE_S = 0.001  # who was woken so long ago at most is not woken again


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of our question number `token`: whether the path to server `destination` by way of `way` is
    connected, and the greatest load on it."""

    destination: int
    way: int
    token: int
    connected: bool
    load: int


@dataclass(frozen=True, slots=True)
class HopLost:
    """The hop from server `near` to server `far`, which a path of ours led over, is dead; says server `by`."""

    near: int
    far: int
    by: int


Event = Send | Answer | HopLost


class Probes:
    """The questions and answers that pass `node`.

    next_hop: (destination, way) -> where a packet goes from here.
    hop_to: neighbour -> how to reach it; ValueError if it is none.
    lives: whether a hop does.
    load: of a port.
    wakes: how often other servers may be woken.
    news: how many sources may be told that a hop died.
    remember_s: how long, at the most, sources go on sending after a question without asking again.
    """

    def __init__(
        self,
        node: int,
        *,
        next_hop: Callable[[int, int], Hop],
        hop_to: Callable[[int], Hop],
        lives: Callable[[Hop], bool],
        load: Callable[[int], int],
        wakes: Budget,
        news: Budget,
        remember_s: float,
    ) -> None:
        self.node = node
        self._next_hop = next_hop
        self._hop_to = hop_to
        self._lives = lives
        self._load = load
        self._wakes, self._news = wakes, news
        self._woken_s: dict[Hop, float] = {}
        self._remember_s = remember_s
        self._passed: dict[Hop, dict[int, tuple[float, tuple[int, ...]]]] = {}  # source -> until when, by whom it came

    def ask(self, destination: int, way: int, token: int, now: float, *, urgent: bool) -> list[Event]:
        """Ask how the path to `destination`, another server, by way of `way` is."""
        probe = wire.Probe(self.node, self.node, self.node, destination, token, way, 0, wire.ASKING, urgent, ())
        return self._on(probe, now)

    def receive(self, message: wire.Probe | wire.HopDied, now: float) -> list[Event]:
        """A neighbour passes `message` on."""
        if message.target != self.node or len(message.visited) > MOST_SERVERS:
            return []
        if isinstance(message, wire.HopDied) or message.verdict != wire.ASKING:
            return self._back(message, now)
        if message.destination == self.node:
            return self._back(replace(message, visited=(*message.visited, self.node), verdict=wire.CONNECTED), now)
        return self._on(message, now)

    def hop_died(self, hop: Hop, now: float) -> list[Event]:
        """Tell those who had a path over `hop`."""
        told: list[Event] = []
        for until_s, visited in self._passed.pop(hop, {}).values():
            if now < until_s and self._news.take(now):
                told += self._back(wire.HopDied(self.node, self.node, self.node, hop.node, visited), now)
        return told

    def tell(self, path: Sequence[int], hop: tuple[int, int], now: float) -> list[Event]:
        """Tell the last server of `path`, which begins here, that `hop` is dead, as though it had asked along it."""
        if not self._news.take(now):
            return []
        return self._back(wire.HopDied(self.node, self.node, *hop, tuple(reversed(path))), now)

    def _on(self, probe: wire.Probe, now: float) -> list[Event]:
        hop = self._next_hop(probe.destination, probe.way)
        visited = (*probe.visited, self.node)
        if not self._lives(hop):
            return self._back(replace(probe, visited=visited, verdict=wire.BROKEN), now)
        self._passed.setdefault(hop, {})[visited[0]] = (now + self._remember_s, visited)
        load = min(max(probe.load, self._load(hop.port)), 0xFFFFFFFF)
        return [self._pass(replace(probe, visited=visited, load=load), hop, now)]

    def _pass(self, message: wire.Probe | wire.HopDied, hop: Hop, now: float) -> Send:
        urgent = isinstance(message, wire.HopDied) or message.urgent
        payload = wire.encode(replace(message, sender=self.node, target=hop.node))
        return Send(hop.port, payload, routine=not (urgent and self._may_wake(hop, now)))

    def _may_wake(self, hop: Hop, now: float) -> bool:
        if now < self._woken_s.get(hop, -inf) + AWAKE_S:
            return True
        if not self._wakes.take(now):
            return False
        self._woken_s[hop] = now
        return True

    def _back(self, message: wire.Probe | wire.HopDied, now: float) -> list[Event]:
        """One server back towards the source, or the news for us if that is who we are."""
        try:
            at = message.visited.index(self.node)
            if at:
                return [self._pass(message, self._hop_to(message.visited[at - 1]), now)]
        except ValueError:  # we are not on the path that it names, or have no such neighbour
            return []
        if isinstance(message, wire.HopDied):
            return [HopLost(message.near, message.far, message.visited[-1])]
        connected = message.verdict == wire.CONNECTED
        return [Answer(message.destination, message.way, message.token, connected, message.load)]
