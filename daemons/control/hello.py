"""Hellos: detection of live neighbours.

Every `interval_ms` a node sends a hello from each port.  A hello lists the nodes heard recently at
that port, with their incarnations.  A neighbour has three states:

    silent --hello--> heard --its hello lists us--> up
       ^                ^                           |
       |                +---it does not list us-----+
       +----`dead` intervals without a hello, or no carrier, from either state

A link that works in one direction only is thus up at neither end.  A change of a hello's content is
sent at once, at most every tenth of an interval.

Slow machines: time by which our own tick is late does not count as silence.  On a machine too slow
for its daemons, silence is no sign of death.  A hello whose sequence number is N ahead was due N
intervals after the last one; later arrival is lateness, a gap in numbers is loss.  Twice the
lateness of hellos, or of our own ticks, is added to the permitted silence of a neighbour.  The
allowance is at most MOST_LATENESS intervals and shrinks while hellos arrive.  The runtime delivers
queued packets before it calls tick().  A runtime without processor time for all hellos has us send
fewer; a hello carries its interval, and neighbours wait in proportion.

Sequence numbers: a hello counts if it is at most MOST_AHEAD newer than the last one, modulo 2^32
(RFC 1982).  A forged number may be far ahead.  A dead neighbour therefore counts again after RESYNC
consecutive hellos over two intervals.

Damping, if `damp_s` is set: a link that fails within STEADY * damp_s of its return is held down for
damp_s, and twice as long each further time, up to most_damp_s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from weft.daemons.core import wire
from weft.daemons.core.actions import Hop, NeighbourNote, Note, Send
from weft.daemons.core.contract import Adjacencies

SEQUENCE_BYTES = wire.SEQUENCE.size
MODULUS = 1 << 8 * SEQUENCE_BYTES
MOST_LATENESS = 100  # intervals: limit of the allowance
LATENESS_KEPT = 15 / 16  # fraction of the allowance left after an interval with a hello


class Neighbour:
    """State of one neighbour at one port, such as `heard` or `up`.

    returned_s: time at which it came up again after a failure.
    hold_down_s: hold-down time at the last failure.
    damped_until_s: end of the hold-down.
    heard_s: time of the last hello, or later if this daemon did not run since.
    dead_s: permitted silence without the allowance for lateness.
    interval_s: time between its regular hellos.
    lateness_s: allowance for lateness.
    sequence: as in the message, big-endian: bytes compare as numbers do.
    ceiling: highest sequence number that refresh() takes as newer.
    old: sequence number of its last outdated hello.
    olds: consecutive outdated hellos, the first at old_s.
    body: its last hello without the sequence number.
    """

    __slots__ = (
        "body",
        "ceiling",
        "damped_until_s",
        "dead_s",
        "digest",
        "heard",
        "heard_s",
        "hold_down_s",
        "hop",
        "incarnation",
        "interval_s",
        "lateness_s",
        "old",
        "old_s",
        "olds",
        "returned_s",
        "sequence",
        "up",
    )

    def __init__(self, hop: Hop) -> None:
        self.hop = hop
        self.heard = self.up = False
        self.returned_s = -inf
        self.hold_down_s = 0.0
        self.damped_until_s = -inf
        self.heard_s = -inf
        self.dead_s = inf
        self.interval_s = inf
        self.lateness_s = 0.0
        self.incarnation = -1
        self.sequence = b""
        self.ceiling = b""
        self.old = 0
        self.olds = 0
        self.old_s = -inf
        self.body = b""
        self.digest = 0

    @property
    def dies_s(self) -> float:
        """Time at which it is dead without a further hello."""
        return self.heard_s + self.dead_s + self.lateness_s

    def measure_lateness(self, sequence: bytes, now: float) -> bool:
        """Allow for the lateness of the hello `sequence`, not yet stored; True if it was late."""
        ahead = (int.from_bytes(sequence, "big") - int.from_bytes(self.sequence, "big")) % MODULUS
        late_s = now - self.heard_s - ahead * self.interval_s
        late = self.interval_s < late_s < inf
        if late:
            self.allow(late_s)
        return late

    def allow(self, late_s: float) -> None:
        """Permit twice `late_s` of additional silence."""
        self.lateness_s = max(self.lateness_s, min(2 * late_s, MOST_LATENESS * self.interval_s))

    def shrink_allowance(self, now: float) -> bool:
        """Shrink the allowance if a hello came in the last interval; True if any is left."""
        if now - self.heard_s <= self.interval_s:
            left_s = self.lateness_s * LATENESS_KEPT
            self.lateness_s = left_s if left_s > self.interval_s / 10 else 0.0
        return self.lateness_s > 0


MOST_GRACE_S = 0.002  # a hello's travel time, and the delay of a timer on a machine in time
STEADY = 10  # shortest hold-down times after which a link no longer counts as flapping
# more hellos than a port sends in 100 intervals, at most 11 in each
MOST_AHEAD = 4096
RESYNC = 4
MOST_OWN_LATENESS = 5  # intervals: a late node notices a death soon after it runs again
STRANGERS_NOTED = 64  # a flood of forged senders must not fill the memory
COUNTERS = ("hellos_sent", "downs", "late_ticks", "strangers", "old_hellos")


@dataclass(frozen=True, slots=True)
class NeighbourChanged:
    """Change of the neighbour at `hop` to up, or from up."""

    hop: Hop
    up: bool


HelloOutcome = NeighbourChanged | Send | Note


class HelloPort:
    """Port that carries hellos.

    known: heard neighbours by the body of their last hello.
    body: content of our next hello here, without sequence number; None after a change.
    digest: the digest in `body`.
    due_s: time of a hello that had to wait; inf without one.
    """

    __slots__ = ("body", "carrier", "digest", "due_s", "known", "neighbours", "number", "sent_s")

    def __init__(self, number: int, nodes: Sequence[int]) -> None:
        self.number = number
        self.neighbours = {node: Neighbour(Hop(number, node)) for node in nodes}
        self.known: dict[bytes, Neighbour] = {}
        self.carrier = True
        self.body: bytes | None = None
        self.digest = 0
        self.sent_s = -inf
        self.due_s = inf


class Neighbourhood:
    """Neighbours of one node, and the hellos that it sends and expects.

    Args:
        node: number of the node.
        ports: nodes that the topology has at each port.
        incarnation: larger than that of any earlier daemon of the node, below 2^63.
        interval_ms: time between hellos.
        dead: missing hellos after which a neighbour is dead.
        phase_fraction: fraction of an interval between start() and the second hello; it keeps nodes
            that start together from ticking together.
        names: names of nodes in notes and status; otherwise their numbers.
        damp_s: shortest hold-down time of a flapping link; 0 for no damping.
        most_damp_s: longest hold-down time.
    """

    def __init__(
        self,
        node: int,
        ports: Mapping[int, Sequence[int]],
        *,
        incarnation: int,
        interval_ms: int = 30,
        dead: int = 3,
        phase_fraction: float = 1.0,
        names: Mapping[int, str] | None = None,
        damp_s: float = 0.0,
        most_damp_s: float = 0.0,
    ) -> None:
        self.node = node
        self.deadline = inf
        self._ports = {number: HelloPort(number, nodes) for number, nodes in ports.items()}
        self._neighbours = [
            neighbour for port in self._ports.values() for neighbour in port.neighbours.values()
        ]
        self._incarnation = incarnation
        self._interval_s = self._sent_every_s = interval_ms / 1000
        self._gap_s = self._interval_s / 10
        self._dead = dead
        self._phase_fraction = phase_fraction
        self._names = names or {}
        self._damp_s = damp_s
        self._most_damp_s = most_damp_s
        self._late = False  # some neighbour has an allowance for lateness
        self._damped: set[Neighbour] = set()  # they list us, but are held down
        self._digest = 0
        self._sequence = 0
        self._regular_s = inf  # time of the next regular hello
        self._dies_s = inf  # earliest time at which a neighbour can be dead
        self._strangers: set[Hop] = set()
        self._counters = dict.fromkeys(COUNTERS, 0)

    def start(self, now: float) -> list[HelloOutcome]:
        """Send the first hello from each port."""
        self._regular_s = now + self._interval_s * self._phase_fraction
        return self._speak(now, everywhere=True)

    def refresh(self, payload: bytes, port: int, now: float) -> bool:
        """Process a hello that equals the sender's last one but for a newer sequence number.

        Most hellos are such; this path must stay short.

        Returns:
            True if processed; False if `payload` needs decoding and receive().
        """
        try:
            neighbour = self._ports[port].known[payload[:-SEQUENCE_BYTES]]
        except KeyError:
            return False
        sequence = payload[-SEQUENCE_BYTES:]
        if neighbour.sequence < sequence <= neighbour.ceiling:
            if now - neighbour.heard_s > neighbour.interval_s + neighbour.interval_s:
                self._late |= neighbour.measure_lateness(sequence, now)
            neighbour.sequence = sequence
            neighbour.heard_s = now
            return True
        return False

    def receive(
        self, hello: wire.Hello, payload: bytes, port: int, now: float
    ) -> list[HelloOutcome]:
        """Process a hello for which refresh() returned False; `payload` is its encoding."""
        hello_port = self._ports.get(port)
        if hello_port is None or not hello_port.carrier:
            return []  # the carrier was lost after it was sent
        neighbour = hello_port.neighbours.get(hello.sender)
        if neighbour is None:
            return self._stranger(Hop(port, hello.sender))
        sequence = payload[-SEQUENCE_BYTES:]
        if hello.incarnation == neighbour.incarnation:
            if not self._is_new(neighbour, hello, now):
                self._counters["old_hellos"] += 1
                return []
            self._late |= neighbour.measure_lateness(sequence, now)
        elif neighbour.heard and hello.incarnation < neighbour.incarnation:
            return []
        if not neighbour.heard or hello.incarnation != neighbour.incarnation:
            neighbour.heard = True
            hello_port.body = None  # it must list this incarnation
        self._note(hello_port, neighbour, hello, payload, now)
        listed = (self.node, self._incarnation) in hello.heard
        cause = "hears us" if listed else "does not hear us"
        return self._set_up(neighbour, listed, cause, now) + self._speak(now)

    def _note(
        self,
        port: HelloPort,
        neighbour: Neighbour,
        hello: wire.Hello,
        payload: bytes,
        now: float,
    ) -> None:
        """Store the last hello of `neighbour`."""
        port.known.pop(neighbour.body, None)
        neighbour.body = payload[:-SEQUENCE_BYTES]
        port.known[neighbour.body] = neighbour
        neighbour.sequence = payload[-SEQUENCE_BYTES:]
        neighbour.incarnation = hello.incarnation
        neighbour.heard_s = now
        neighbour.ceiling = wire.SEQUENCE.pack(min(hello.sequence + MOST_AHEAD, MODULUS - 1))
        neighbour.olds = 0
        neighbour.interval_s = hello.interval_ms / 1000
        grace_s = min(neighbour.interval_s / 10, MOST_GRACE_S)
        neighbour.dead_s = self._dead * neighbour.interval_s + grace_s
        neighbour.digest = hello.digest

    def _is_new(self, neighbour: Neighbour, hello: wire.Hello, now: float) -> bool:
        """Return True if `hello`, of the known incarnation, is newer than the last one.

        Also if it is the last of the RESYNC hellos after which a dead neighbour counts again.
        """
        ahead = (hello.sequence - int.from_bytes(neighbour.sequence, "big")) % MODULUS
        if neighbour.heard:
            return 0 < ahead <= MOST_AHEAD
        if 0 < ahead < MODULUS // 2:
            return True
        follows = 0 < (hello.sequence - neighbour.old) % MODULUS <= MOST_AHEAD
        if neighbour.olds == 0 or not follows:
            neighbour.olds = 0
            neighbour.old_s = now
        neighbour.olds += 1
        neighbour.old = hello.sequence
        return neighbour.olds >= RESYNC and now >= neighbour.old_s + 2 * hello.interval_ms / 1000

    def link_changed(self, port: int, up: bool, now: float) -> list[HelloOutcome]:
        """Process a change of the carrier of `port`."""
        hello_port = self._ports.get(port)
        if hello_port is None or hello_port.carrier == up:
            return []
        hello_port.carrier = up
        hello_port.body = None
        events: list[HelloOutcome] = []
        for neighbour in hello_port.neighbours.values():
            events += self._silence(neighbour, "no carrier", now)
            neighbour.heard_s = -inf  # the gap is no lateness of its next hello
        return events + self._speak(now)

    def tick(self, now: float) -> list[HelloOutcome]:
        """Detect dead neighbours, end hold-downs, and send the hellos that are due."""
        late_s = now - self.deadline
        if late_s > self._interval_s:
            self._counters["late_ticks"] += 1
            for neighbour in self._neighbours:
                neighbour.heard_s = min(neighbour.heard_s + late_s, now)
                neighbour.allow(min(late_s, MOST_OWN_LATENESS * self._interval_s))
            self._late = True
        events = self._expire(now)
        regular = now >= self._regular_s
        if regular:  # keep the phase, skip missed hellos
            if self._late and late_s <= self._interval_s:
                allowances = [neighbour.shrink_allowance(now) for neighbour in self._neighbours]
                self._late = any(allowances)
            every_s = self._sent_every_s
            self._regular_s += every_s * ((now - self._regular_s) // every_s + 1)
        return events + self._speak(now, everywhere=regular)

    def slow_down(self, factor: int, now: float) -> list[HelloOutcome]:
        """Send regular hellos in `factor` intervals from now on, and announce that at once."""
        every_s = min(self._interval_s * factor, wire.MOST_INTERVAL_MS / 1000)
        if every_s == self._sent_every_s:
            return []
        self._sent_every_s = every_s
        self._regular_s = min(self._regular_s, now + every_s)
        for port in self._ports.values():
            port.body = None
        return self._speak(now)

    def _expire(self, now: float) -> list[HelloOutcome]:
        """Return the changes of neighbours that are dead, or whose hold-down is over."""
        events: list[HelloOutcome] = []
        if now >= self._dies_s:
            for neighbour in self._neighbours:
                if neighbour.heard and neighbour.dies_s <= now:
                    silent_ms = (now - neighbour.heard_s) * 1000
                    events += self._silence(neighbour, f"silent for {silent_ms:.0f} ms", now)
        if self._damped:
            for neighbour in self._neighbours:  # not the set: the order must not vary
                if neighbour in self._damped and neighbour.damped_until_s <= now:
                    events += self._set_up(neighbour, True, "steady again", now)
        return events

    def set_digest(self, digest: int) -> None:
        """Set the digest of the link-state database in our hellos."""
        self._digest = digest

    def neighbours(self) -> list[Neighbour]:
        """Return all neighbours that the topology has."""
        return self._neighbours

    def digest(self, hop: Hop) -> int:
        """Return the digest in the last hello of `hop`; 0 if it is no neighbour."""
        port = self._ports.get(hop.port)
        return port.neighbours[hop.node].digest if port and hop.node in port.neighbours else 0

    def complete(self) -> bool:
        """Return True if all neighbours are up."""
        return all(neighbour.up for neighbour in self._neighbours)

    def adjacencies(self) -> Adjacencies:
        up = sum([neighbour.up for neighbour in self._neighbours])
        return Adjacencies(len(self._neighbours), up, self._counters["downs"])

    def name(self, node: int) -> str:
        return self._names.get(node, str(node))

    def status(self) -> dict[str, Any]:
        return {
            "neighbours": [
                {
                    "port": neighbour.hop.port,
                    "node": self.name(neighbour.hop.node),
                    "state": self._state(neighbour),
                }
                for neighbour in self._neighbours
            ],
            **self._counters,
        }

    def _state(self, neighbour: Neighbour) -> str:
        if neighbour.up:
            return "up"
        return "damped" if neighbour in self._damped else "heard" if neighbour.heard else "silent"

    def _set_up(self, neighbour: Neighbour, up: bool, why: str, now: float) -> list[HelloOutcome]:
        self._damped.discard(neighbour)
        if neighbour.up == up:
            return []
        if up and now < neighbour.damped_until_s:
            self._damped.add(neighbour)
            return []
        neighbour.up = up
        if up:
            has_failed_before = neighbour.damped_until_s > -inf
            neighbour.returned_s = now if has_failed_before else -inf
        else:
            flaps = now < neighbour.returned_s + STEADY * self._damp_s
            doubled_s = max(2 * neighbour.hold_down_s, self._damp_s)
            neighbour.hold_down_s = min(doubled_s, self._most_damp_s) if flaps else 0.0
            neighbour.damped_until_s = now + neighbour.hold_down_s
        self._counters["downs"] += not up
        port, node = neighbour.hop
        name = self.name(node)
        text = f"port {port}: neighbour {name} {'up' if up else 'down'}: {why}"
        return [NeighbourChanged(neighbour.hop, up), NeighbourNote(text, port, name, up, why)]

    def _silence(self, neighbour: Neighbour, why: str, now: float) -> list[HelloOutcome]:
        """Set `neighbour` to silent."""
        if neighbour.heard:
            neighbour.heard = False
            hello_port = self._ports[neighbour.hop.port]
            hello_port.known.pop(neighbour.body, None)
            hello_port.body = None
        return self._set_up(neighbour, False, why, now)

    def _stranger(self, hop: Hop) -> list[HelloOutcome]:
        self._counters["strangers"] += 1
        if hop in self._strangers or len(self._strangers) >= STRANGERS_NOTED:
            return []
        self._strangers.add(hop)
        return [
            Note(
                f"port {hop.port}: hello from {self.name(hop.node)}, which the topology "
                f"does not promise there"
            )
        ]

    def _body(self, port: HelloPort) -> bytes:
        heard = [
            (node, other.incarnation) for node, other in port.neighbours.items() if other.heard
        ]
        port.digest = self._digest
        interval_ms = round(1000 * self._sent_every_s)
        return wire.hello_body(self.node, self._incarnation, interval_ms, self._digest, heard)

    def _speak(self, now: float, everywhere: bool = False) -> list[HelloOutcome]:
        """Return the hellos that are due, and set the next deadline."""
        events: list[HelloOutcome] = []
        sequence = b""
        deadline = self._regular_s
        for port in self._ports.values():
            if not port.carrier:
                continue
            if port.body is None:
                port.body = self._body(port)
                port.due_s = port.sent_s + self._gap_s
            if everywhere or port.due_s <= now:
                if port.digest != self._digest:
                    port.body = self._body(port)
                if not sequence:
                    self._sequence = (self._sequence + 1) % MODULUS
                    sequence = wire.SEQUENCE.pack(self._sequence)
                events.append(Send(port.number, port.body + sequence, routine=port.due_s == inf))
                port.sent_s = now
                port.due_s = inf
            if port.due_s < deadline:
                deadline = port.due_s
        self._counters["hellos_sent"] += len(events)
        self._dies_s = min(
            [neighbour.dies_s for neighbour in self._neighbours if neighbour.heard], default=inf
        )
        self.deadline = min(deadline, self._dies_s)
        return events
