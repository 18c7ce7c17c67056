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
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import inf

from weft.daemons.core import wire
from weft.daemons.core.actions import Hop, Send
from weft.daemons.core.timers import TokenBucket

MOST_REMEMBERED = 1024  # sources for each hop, and broken paths; the oldest are dropped first
AWAKE_S = 0.001  # time for which a server that was woken counts as awake


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
