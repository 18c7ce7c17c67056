"""Asking a path how it is.

A question goes from server to server as a packet on that path would, collects the greatest load of the ports that it
leaves by, and is answered by the destination; the answer goes back by the servers visited.  A server that has no way on
answers in its stead that the path is broken.

Every server remembers for a while whose questions went on by which of its hops (CCRDN 5.4, third aspect: path state in
tables on the way, at no extra cost).  When a hop dies it tells those sources at once; they need not wait for an answer
that does not come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from daemons import wire
from daemons.protocol import Hop, Send

MOST_REMEMBERED = 4096  # questions; a flood must not fill the memory


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of our question number `token`: whether the path to server `destination` by way of `way` is
    connected, its hops and greatest load if it is."""

    destination: int
    way: int
    token: int
    connected: bool
    hops: int
    load: int


class Probes:
    """The questions and answers that pass `node`.

    next_hop: (destination, way) -> where a packet goes from here.
    hop_to: neighbour -> how to reach it.
    lives: whether a hop does.
    load: of a port.
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
        remember_s: float,
    ) -> None:
        self.node = node
        self._next_hop = next_hop
        self._hop_to = hop_to
        self._lives = lives
        self._load = load
        self._remember_s = remember_s
        self._passed: dict[tuple[int, int, int], tuple[float, Hop, wire.Probe]] = {}  # by source, destination, way

    def ask(self, destination: int, way: int, token: int, now: float) -> list[Send | Answer]:
        """Ask how the path to `destination`, another server, by way of `way` is."""
        probe = wire.Probe(self.node, self.node, self.node, destination, token, way, 0, wire.ASKING, ())
        return self._on(probe, now)

    def receive(self, probe: wire.Probe, now: float) -> list[Send | Answer]:
        """A neighbour passes `probe` on."""
        if probe.target != self.node or len(probe.visited) > 64:
            return []
        if probe.verdict != wire.ASKING:
            return self._back(probe)
        if probe.destination == self.node:
            return self._back(replace(probe, visited=(*probe.visited, self.node), verdict=wire.CONNECTED))
        return self._on(probe, now)

    def hop_died(self, hop: Hop, now: float) -> list[Send | Answer]:
        """Tell everybody whose path led over `hop`."""
        told: list[Send | Answer] = []
        for key, (until_s, by, probe) in list(self._passed.items()):
            if by == hop:
                del self._passed[key]
                if now < until_s:
                    told += self._back(replace(probe, verdict=wire.BROKEN))
        return told

    def _on(self, probe: wire.Probe, now: float) -> list[Send | Answer]:
        hop = self._next_hop(probe.destination, probe.way)
        passed = replace(
            probe, visited=(*probe.visited, self.node), load=min(max(probe.load, self._load(hop.port)), 0xFFFFFFFF)
        )
        if not self._lives(hop):
            return self._back(replace(passed, verdict=wire.BROKEN))
        self._remember(passed, hop, now)
        return [Send(hop.port, wire.encode(replace(passed, sender=self.node, target=hop.node)))]

    def _remember(self, probe: wire.Probe, hop: Hop, now: float) -> None:
        key = probe.source, probe.destination, probe.way
        self._passed.pop(key, None)
        self._passed[key] = (now + self._remember_s, hop, probe)
        if len(self._passed) > MOST_REMEMBERED:
            del self._passed[next(iter(self._passed))]

    def _back(self, probe: wire.Probe) -> list[Send | Answer]:
        """One server back towards the source."""
        try:
            at = probe.visited.index(self.node)
            if at == 0:
                connected = probe.verdict == wire.CONNECTED
                hops = len(probe.visited) - 1
                return [Answer(probe.destination, probe.way, probe.token, connected, hops, probe.load)]
            hop = self._hop_to(probe.visited[at - 1])
        except ValueError:  # we are not on the path that it names, or have no such neighbour
            return []
        return [Send(hop.port, wire.encode(replace(probe, sender=self.node, target=hop.node)))]
