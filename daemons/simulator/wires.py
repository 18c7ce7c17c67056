"""Wires in memory: who hears what a node sends at a port, and what becomes of it on its way.

A packet is delivered to whoever the wires lead to when it is sent: what is in flight when a link dies still arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from weft.daemons.core.actions import Send
from weft.daemons.simulator.event_queue import PACKET, EventQueue

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology


class Randomness(Protocol):
    """random.Random, or numpy's Generator."""

    def random(self) -> float:
        """Uniform in [0, 1)."""


@dataclass(frozen=True, kw_only=True)
class Wire:
    """What a link does to a packet, in each direction.

    jitter_s: up to this much is added to the delay of each packet, which may then overtake others.
    """

    delay_s: float = 50e-6
    jitter_s: float = 0.0
    loss_fraction: float = 0.0
    duplicate_fraction: float = 0.0

    @property
    def draws(self) -> bool:
        """Whether chance decides about packets."""
        return bool(self.jitter_s or self.loss_fraction or self.duplicate_fraction)


class Listener(NamedTuple):
    """Who hears a port: the node, its own port there, and how many links lie between."""

    node: int
    port: int
    links: int


class Wires:
    """The links of `topology`, all alive at first.

    deliver: (listeners, packet) -> called when a packet arrives.
    ValueError if `wire` draws and there is no `random`.
    """

    def __init__(
        self,
        topology: Topology,
        wire: Wire,
        random: Randomness | None,
        events: EventQueue,
        deliver: Callable[[Iterable[Listener], Send], None],
    ) -> None:
        if random is None and wire.draws:
            raise ValueError("wires that lose, delay or duplicate at random need a random generator")
        self.counters = {"messages": 0, "bytes": 0}
        self._topology, self._wire, self._random = topology, wire, random
        self._events, self._deliver = events, deliver
        self._ports = [topology.ports(node) for node in range(topology.nodes)]
        self._dead: set[tuple[int, int]] = set()  # (link, end): nothing that this end sends arrives
        self._no_carrier: set[int] = set()
        self._listeners: dict[tuple[int, int], list[Listener]] = {}
        for node in range(topology.nodes):
            self._rewire(node)

    def ports(self, node: int) -> list[tuple[int, int, int, int]]:
        """As Topology.ports()."""
        return self._ports[node]

    def has_carrier(self, link: int) -> bool:
        """Whether the ends of `link` take it to be alive."""
        return link not in self._no_carrier

    def hear(self, node: int, port: int) -> list[int]:
        """Who hears what `node` sends at `port`."""
        return [listener.node for listener in self._listeners[node, port]]

    def fail(self, link: int, *, silent: bool, sender: int | None) -> bool:
        """`link` passes nothing more, or nothing of `sender`; whether its carrier goes with that."""
        if sender is not None and not silent:
            raise ValueError("a failure of one direction is silent")
        self._dead |= {(link, end) for end in (self._ends(link) if sender is None else (sender,))}
        if not silent:
            self._no_carrier.add(link)
        self._rewire_around(link)
        return not silent

    def restore(self, link: int) -> bool:
        """`link` works again; whether its carrier comes with that."""
        self._dead -= {(link, end) for end in self._ends(link)}
        had_carrier = self.has_carrier(link)
        self._no_carrier.discard(link)
        self._rewire_around(link)
        return not had_carrier

    def send(self, node: int, send: Send) -> None:
        """Put a packet on the wire."""
        self.counters["messages"] += 1
        self.counters["bytes"] += len(send.payload)
        listeners = self._listeners[node, send.port]
        if not listeners:
            return
        now, wire = self._events.now, self._wire
        if self._random is None:
            self._events.push(now + listeners[0].links * wire.delay_s, PACKET, self._deliver, listeners, send)
            return
        draw = self._random.random
        for listener in listeners:
            for _ in range(2 if draw() < wire.duplicate_fraction else 1):
                if draw() < (1 - wire.loss_fraction) ** listener.links:
                    jitter_s = sum(wire.jitter_s * draw() for _ in range(listener.links))
                    arrives_s = now + listener.links * wire.delay_s + jitter_s
                    self._events.push(arrives_s, PACKET, self._deliver, (listener,), send)

    def _ends(self, link: int) -> tuple[int, int]:
        a, _, b, _ = self._topology.links[link].tolist()
        return a, b

    def _rewire_around(self, link: int) -> None:
        """Find anew who hears whom around `link`."""
        for end in self._ends(link):
            self._rewire(end)
            for _, peer, _, _ in self._ports[end] if self._topology.is_crossbar(end) else ():
                self._rewire(peer)

    def _rewire(self, node: int) -> None:
        """Who hears what `node` sends at each port."""
        crossbar = self._topology.is_crossbar
        if crossbar(node):
            return
        for port, peer, peer_port, link in self._ports[node]:
            found = self._listeners[node, port] = []
            if (link, node) in self._dead:
                continue
            if not crossbar(peer):
                found.append(Listener(peer, peer_port, 1))
                continue
            for _, other, other_port, onward in self._ports[peer]:
                if other != node and (onward, peer) not in self._dead:
                    found.append(Listener(other, other_port, 2))
