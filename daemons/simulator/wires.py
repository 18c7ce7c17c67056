"""Wires in memory: receivers of a node's packets at each port, and impairments on the way.

The receivers of a packet are fixed when it is sent: packets in flight when a link fails arrive.  A
link may have properties of its own (alter()): loss, delay, duplicates, bit errors, replays.
Messages are not sealed here, so that altered packets reach the state machines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from math import inf, prod
from typing import TYPE_CHECKING, NamedTuple, Protocol

from weft.daemons.core.actions import Send

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

PACKET, TICK, CALL = range(3)  # kinds of events, in their order at one instant
MOST_REMEMBERED = 32  # packets that may be replayed, for each listener
NodePort = tuple[int, int]  # a node and its port


class EventQueue:
    """Pending calls, ordered by time, kind, and order of push(); time begins at 0."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, int, Callable[..., None], tuple[object, ...]]] = []
        self._number = count()

    def push(self, time_s: float, kind: int, call: Callable[..., None], *arguments: object) -> None:
        """Schedule `call` with these arguments at `time_s`, in seconds or the unit of all users."""
        heappush(self._heap, (time_s, kind, next(self._number), call, arguments))

    @property
    def next_s(self) -> float:
        """Return the time of the next call; infinite if none is pending."""
        return self._heap[0][0] if self._heap else inf

    def run_until(self, time_s: float) -> None:
        """Run all events up to and including `time_s`."""
        heap = self._heap
        while heap and heap[0][0] <= time_s:
            self.now, _, _, call, arguments = heappop(heap)
            call(*arguments)
        self.now = max(self.now, time_s)


class Randomness(Protocol):
    """random.Random, or numpy's Generator."""

    def random(self) -> float:
        """Uniform in [0, 1)."""


@dataclass(frozen=True, kw_only=True)
class Wire:
    """Properties of a link, in each direction.

    jitter_s: highest additional delay of a packet; packets may overtake each other.
    corrupt_fraction: fraction of packets with one flipped bit.
    replay_fraction: fraction of packets that are followed by an earlier one.
    """

    delay_s: float = 50e-6
    jitter_s: float = 0.0
    loss_fraction: float = 0.0
    duplicate_fraction: float = 0.0
    corrupt_fraction: float = 0.0
    replay_fraction: float = 0.0

    @property
    def draws(self) -> bool:
        """True if the properties need random numbers."""
        fractions = (
            self.loss_fraction,
            self.duplicate_fraction,
            self.corrupt_fraction,
            self.replay_fraction,
        )
        return bool(self.jitter_s) or any(fractions)


def joined(wires: Sequence[Wire]) -> Wire:
    """Return the properties of links in series, without jitter."""

    def either(fractions: Iterable[float]) -> float:
        return 1 - prod(1 - fraction for fraction in fractions)

    return Wire(
        delay_s=sum(wire.delay_s for wire in wires),
        loss_fraction=either(wire.loss_fraction for wire in wires),
        duplicate_fraction=either(wire.duplicate_fraction for wire in wires),
        corrupt_fraction=either(wire.corrupt_fraction for wire in wires),
        replay_fraction=either(wire.replay_fraction for wire in wires),
    )


class Passage:
    """Way over `wires` in series; `random` may be None if no wire draws random numbers."""

    def __init__(self, wires: Sequence[Wire], random: Randomness | None) -> None:
        self._wire = joined(wires)
        self._random = random
        self._jitters_s = [wire.jitter_s for wire in wires]
        self._late_only = not self._wire.draws  # a joined wire has no jitter
        self._passed: deque[bytes] = deque(maxlen=MOST_REMEMBERED)

    def arrivals(self, payload: bytes) -> list[tuple[float, bytes]]:
        """Return the delays and payloads of the packets that arrive after `payload` is sent."""
        wire = self._wire
        if self._random is None:
            return [(wire.delay_s, payload)]
        draw = self._random.random
        packets = []
        if self._late_only:  # most packets: as below, with as many random numbers
            draw(), draw()
            jitter_s = 0.0
            for most_s in self._jitters_s:
                jitter_s += most_s * draw()
            draw()
            return [(wire.delay_s + jitter_s, payload)]
        for _ in range(2 if draw() < wire.duplicate_fraction else 1):
            if draw() < 1 - wire.loss_fraction:
                late_s = wire.delay_s + sum([jitter_s * draw() for jitter_s in self._jitters_s])
                corrupt = draw() < wire.corrupt_fraction
                packets.append((late_s, flipped(payload, draw()) if corrupt else payload))
        if wire.replay_fraction:
            if self._passed and draw() < wire.replay_fraction:
                packets.append((wire.delay_s, self._passed[int(draw() * len(self._passed))]))
            self._passed.append(payload)
        return packets


class Listener(NamedTuple):
    """Receiver at a port: node, its own port, and the links between."""

    node: int
    port: int
    links: tuple[int, ...]


class Wires:
    """Links of a network, all live at first.

    Args:
        topology: the network.
        wire: properties of all links.
        random: random numbers; may be None if no wire draws any.
        events: queue of events.
        deliver: (listeners, packet), called when a packet arrives.

    Raises:
        ValueError: `wire` draws random numbers, and `random` is None.
    """

    def __init__(
        self,
        topology: Topology,
        wire: Wire,
        random: Randomness | None,
        events: EventQueue,
        deliver: Callable[[Iterable[Listener], Send], None],
    ) -> None:
        self._random = random
        self._need_random(wire)
        self.counters = {"messages": 0, "bytes": 0}
        self._topology = topology
        self._wire = wire
        self._draws = wire.draws
        self._altered: dict[int, Wire] = {}  # by link
        # by sender and port
        self._listeners: dict[NodePort, list[Listener]] = {}
        self._heard_by: dict[NodePort, set[int]] = {}
        self._passages: dict[Listener, Passage] = {}
        self._heard_through: dict[NodePort, list[tuple[tuple[Listener], Passage]]] = {}
        self._events = events
        self._deliver = deliver
        self._ports = [topology.ports(node) for node in range(topology.nodes)]
        self._dead: set[tuple[int, int]] = set()  # (link, end): nothing that this end sends arrives
        self._no_carrier: set[int] = set()
        self.changes = 0  # of receivers
        for node in range(topology.nodes):
            self._rewire(node)

    def ports(self, node: int) -> list[tuple[int, int, int, int]]:
        """Return Topology.ports(node)."""
        return self._ports[node]

    def has_carrier(self, link: int) -> bool:
        """Return True if the ends of `link` have a carrier."""
        return link not in self._no_carrier

    def leads(self, node: int, port: int, neighbour: int) -> bool:
        """Return True if packets of `node` at `port` reach `neighbour`."""
        return neighbour in self._heard_by[node, port]

    def fail(self, link: int, *, silent: bool, sender: int | None) -> bool:
        """Fail `link`, or only packets of `sender` on it; return True if the carrier is lost."""
        if sender is not None and not silent:
            raise ValueError("a failure of one direction is silent")
        self._dead |= {(link, end) for end in (self._ends(link) if sender is None else (sender,))}
        if not silent:
            self._no_carrier.add(link)
        self._rewire_around(link)
        return not silent

    def restore(self, link: int) -> bool:
        """Restore `link`; return True if the carrier returns."""
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
        now = self._events.now
        if not self._altered and not self._draws:
            arrives_s = now + len(listeners[0].links) * self._wire.delay_s
            self._events.push(arrives_s, PACKET, self._deliver, listeners, send)
            return
        through = self._heard_through.get((node, send.port))
        if through is None:
            through = [((listener,), self._passage(listener)) for listener in listeners]
            self._heard_through[node, send.port] = through
        for listener, passage in through:
            for late_s, payload in passage.arrivals(send.payload):
                packet = send if payload is send.payload else send._replace(payload=payload)
                self._events.push(now + late_s, PACKET, self._deliver, listener, packet)

    def alter(self, link: int, wire: Wire | None) -> None:
        """Set the properties of `link`; None: those of all links."""
        self._passages.clear()
        self._heard_through.clear()
        if wire is None:
            self._altered.pop(link, None)
            return
        self._need_random(wire)
        self._altered[link] = wire

    def _need_random(self, wire: Wire) -> None:
        if self._random is None and wire.draws:
            raise ValueError(
                "wires that lose, delay, change or repeat packets at random need a random generator"
            )

    def _passage(self, listener: Listener) -> Passage:
        """Return the way to `listener`."""
        if (passage := self._passages.get(listener)) is None:
            wires = [self._altered.get(link, self._wire) for link in listener.links]
            passage = self._passages[listener] = Passage(wires, self._random)
        return passage

    def _ends(self, link: int) -> tuple[int, int]:
        a, _, b, _ = self._topology.ends(link)
        return a, b

    def _rewire_around(self, link: int) -> None:
        """Update the receivers around `link`."""
        self.changes += 1
        for end in self._ends(link):
            self._rewire(end)
            for _, peer, _, _ in self._ports[end] if self._topology.is_crossbar(end) else ():
                self._rewire(peer)

    def _rewire(self, node: int) -> None:
        """Update the receivers of `node` at each port."""
        if self._topology.is_crossbar(node):
            return
        for port, peer, peer_port, link in self._ports[node]:
            listeners = (
                []
                if (link, node) in self._dead
                else list(self._beyond(node, Listener(peer, peer_port, (link,))))
            )
            self._listeners[node, port] = listeners
            self._heard_through.pop((node, port), None)
            self._heard_by[node, port] = {listener.node for listener in listeners}

    def _beyond(self, node: int, first: Listener) -> Iterable[Listener]:
        """Return `first`, or the other nodes at it if it is a crossbar."""
        if not self._topology.is_crossbar(first.node):
            return [first]
        return [
            Listener(other, other_port, (*first.links, onward))
            for _, other, other_port, onward in self._ports[first.node]
            if other != node and (onward, first.node) not in self._dead
        ]


def flipped(payload: bytes, draw: float) -> bytes:
    """Return `payload` with one flipped bit, chosen by `draw` in [0, 1)."""
    altered = bytearray(payload)
    bit = int(draw * 8 * len(payload))
    if altered:
        altered[bit // 8] ^= 1 << bit % 8
    return bytes(altered)
