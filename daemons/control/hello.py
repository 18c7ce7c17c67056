"""Who is alive around one node.

Every `interval_ms` a hello leaves each port, for everybody there to hear; it lists the nodes that
were heard there of late.  A neighbour goes through three states:

    silent --heard--> heard --it lists us--> up
       ^                ^                     |
       |                +---it does not-------+
       +----dead x interval without a hello, or no carrier, from either

so that a link that works in one direction only is up at neither end: the end that hears nothing
stops listing the other.  Being listed means with our incarnation, so that what a neighbour said to
our predecessor does not count.

Changes do not wait for the next interval.  Whenever what a port has to say has changed, it is said
at once, unless the port spoke less than a tenth of an interval ago; then, that long after it did.
Two neighbours are up after three hellos.

Silence.  A neighbour is dead `dead` of its own intervals after its last hello, plus 2 ms, or a
tenth of one if that is less, so that the hello that is sent just then still counts.  On a machine
that is too slow for its daemons, silence is no sign of death.  Three rules keep such a machine from
losing neighbours that live:

  - The runtime hands over everything that is queued before it calls tick().
  - Where a tick comes more than an interval late, the time by which it is late does not count as
    silence.
  - Twice the observed lateness is added to the silence that is allowed.  It is the lateness of our
    own ticks, because the others run on the same machine, up to MOST_OWN_LATENESS intervals.  It is
    also that of a neighbour's hellos: one whose number is N ahead was due N intervals after the
    last one.  A lost hello leaves a gap in the numbers, so loss is no lateness.  The allowance is
    at most MOST_LATENESS intervals.  It shrinks by a sixteenth in each interval in which the
    neighbour is heard.

On a machine that keeps up, no hello is an interval late, and a death is noticed within dead x
interval + 2 ms.

Sequence numbers.  Of what a neighbour says only what is newer than its last hello counts, and not
much newer: at most MOST_AHEAD hellos, more than can be missed before it is dead.  Numbers are
compared modulo 2^32, as RFC 1982 does, so that a daemon may run for as long as it likes.  A number
that was forged, or that a flipped bit made, may lead beyond the neighbour's own all the same, and
its hellos are then old; so once it is dead, it is heard anew as soon as it says RESYNC hellos that
follow one another over two of its intervals.  Whatever was said in its name, it is back after it
has been silent for once.

Damping, where it is asked for.  A link that dies again less than STEADY times `damp_s` after it
came back is flapping: it is not up again before `damp_s` have passed, each further time twice as
long, up to `most_damp_s`.  Any other link that comes back is up at once.

The hot path is refresh(): hundreds of daemons share a machine, and nearly every hello says what the
one before it said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from weft.daemons.control.neighbour import MODULUS, SEQUENCE_BYTES, Neighbour
from weft.daemons.core import wire
from weft.daemons.core.actions import Hop, NeighbourNote, Note, Send
from weft.daemons.core.contract import Adjacencies

MOST_GRACE_S = 0.002  # on its way, and until a timer of a machine that is not overloaded fires
STEADY = 10  # times the least rest: a link that lives longer than that is not flapping
# hellos: more than 100 intervals have of them, in each of which a port speaks 11 times at most
MOST_AHEAD = 4096
RESYNC = 4
MOST_OWN_LATENESS = 5  # intervals: a node that was late notices a death soon after it runs again
STRANGERS_NOTED = 64  # a flood of false names must not fill the memory


@dataclass(frozen=True, slots=True)
class NeighbourChanged:
    """`hop` came up, or is up no longer."""

    hop: Hop
    up: bool


HelloOutcome = NeighbourChanged | Send | Note


class HelloPort:
    """One port that carries hellos."""

    __slots__ = ("body", "carrier", "digest", "due_s", "known", "neighbours", "number", "sent_s")

    def __init__(self, number: int, nodes: Sequence[int]) -> None:
        self.number = number
        self.neighbours = {node: Neighbour(Hop(number, node)) for node in nodes}
        # by the body of their last hello, those that are heard
        self.known: dict[bytes, Neighbour] = {}
        self.carrier = True
        # what we say here, None if that has changed since, digests aside
        self.body: bytes | None = None
        self.digest = 0  # in it
        self.sent_s = -inf
        self.due_s = inf  # when a change has to be said that had to wait


class Neighbourhood:
    """The neighbours of `node`: by port, the nodes that the topology promises there.

    incarnation: larger than that of any daemon that ran on this node before, below 2^63.
    phase_fraction: of an interval, from start() to the second hello, so that nodes started together
    do not tick together. names: what to call nodes in notes and status, else their numbers.
    damp_s, most_damp_s: how long a flapping link stays down; 0: as long as it is dead.
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
        self._interval_ms, self._interval_s = interval_ms, interval_ms / 1000
        self._gap_s = self._interval_s / 10
        self._dead = dead
        self._phase_fraction = phase_fraction
        self._names = names or {}
        self._damp_s, self._most_damp_s = damp_s, most_damp_s
        self._late = False  # whether any neighbour has an allowance for lateness
        self._damped: set[Neighbour] = set()  # heard and listing us, but to stay down for a while
        self._digest = 0
        self._sequence = 0
        self._regular_s = inf  # when the next hello leaves every port
        self._dies_s = inf  # nobody is dead before
        self._strangers: set[Hop] = set()
        self._counters = {
            "hellos_sent": 0,
            "downs": 0,
            "late_ticks": 0,
            "strangers": 0,
            "old_hellos": 0,
        }

    def start(self, now: float) -> list[HelloOutcome]:
        """Say hello everywhere."""
        self._regular_s = now + self._interval_s * self._phase_fraction
        return self._speak(now, everywhere=True)

    def refresh(self, payload: bytes, port: int, now: float) -> bool:
        """Whether `payload` says, newly, what its sender's last hello said; if so it has been dealt
        with."""
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
        """A hello, `payload` as it was on the wire, that refresh() left."""
        if port not in self._ports or not self._ports[port].carrier:
            return []  # read after the carrier had gone, sent before
        at = self._ports[port]
        neighbour = at.neighbours.get(hello.sender)
        if neighbour is None:
            return self._stranger(Hop(port, hello.sender))
        sequence = payload[-SEQUENCE_BYTES:]
        if hello.incarnation == neighbour.incarnation:
            if not self._is_new(neighbour, hello, now):
                self._counters["old_hellos"] += 1
                return []
            self._late |= neighbour.measure_lateness(sequence, now)
        elif neighbour.heard:
            if hello.incarnation < neighbour.incarnation:
                return []
            at.body = None  # we have heard it anew
        if not neighbour.heard:
            neighbour.heard = True
            at.body = None
        at.known.pop(neighbour.body, None)
        neighbour.body = payload[:-SEQUENCE_BYTES]
        at.known[neighbour.body] = neighbour
        neighbour.incarnation, neighbour.sequence, neighbour.heard_s = (
            hello.incarnation,
            sequence,
            now,
        )
        neighbour.ceiling = wire.SEQUENCE.pack(min(hello.sequence + MOST_AHEAD, MODULUS - 1))
        neighbour.olds = 0
        neighbour.interval_s = interval_s = hello.interval_ms / 1000
        neighbour.dead_s = self._dead * interval_s + min(interval_s / 10, MOST_GRACE_S)
        neighbour.digest = hello.digest
        listed = (self.node, self._incarnation) in hello.heard
        return self._set_up(
            neighbour, listed, "hears us" if listed else "does not hear us", now
        ) + self._speak(now)

    def _is_new(self, neighbour: Neighbour, hello: wire.Hello, now: float) -> bool:
        """Whether this hello, of the incarnation that is known, is newer than the last one, or the
        first of which we know again how new they are."""
        ahead = (hello.sequence - int.from_bytes(neighbour.sequence, "big")) % MODULUS
        if neighbour.heard:
            return 0 < ahead <= MOST_AHEAD
        if 0 < ahead < MODULUS // 2:
            return True
        follows = 0 < (hello.sequence - neighbour.old) % MODULUS <= MOST_AHEAD
        if neighbour.olds == 0 or not follows:
            neighbour.olds, neighbour.old_s = 0, now
        neighbour.olds += 1
        neighbour.old = hello.sequence
        return neighbour.olds >= RESYNC and now >= neighbour.old_s + 2 * hello.interval_ms / 1000

    def link_changed(self, port: int, up: bool, now: float) -> list[HelloOutcome]:
        """The carrier of `port` came or went."""
        if port not in self._ports or self._ports[port].carrier == up:
            return []
        at = self._ports[port]
        at.carrier, at.body, events = up, None, []
        for neighbour in at.neighbours.values():
            events += self._silence(neighbour, "no carrier", now)
            neighbour.heard_s = -inf  # its next hello tells nothing of its lateness
        return events + self._speak(now)

    def tick(self, now: float) -> list[HelloOutcome]:
        """Note who is dead, say hello where it is time to."""
        late_s = now - self.deadline
        if late_s > self._interval_s:
            self._counters["late_ticks"] += 1
            for neighbour in self._neighbours:
                neighbour.heard_s = min(neighbour.heard_s + late_s, now)
                neighbour.allow(min(late_s, MOST_OWN_LATENESS * self._interval_s))
            self._late = True
        events: list[HelloOutcome] = []
        if now >= self._dies_s:
            for neighbour in self._neighbours:
                if (
                    neighbour.heard
                    and neighbour.heard_s + neighbour.dead_s + neighbour.lateness_s <= now
                ):
                    events += self._silence(
                        neighbour, f"silent for {(now - neighbour.heard_s) * 1000:.0f} ms", now
                    )
        if self._damped:
            for neighbour in self._neighbours:  # in an order that is the same each time
                if neighbour in self._damped and neighbour.damped_s <= now:
                    events += self._set_up(neighbour, True, "steady again", now)
        regular = now >= self._regular_s
        if regular:  # keep the phase, leave out what was missed
            if self._late and late_s <= self._interval_s:
                allowances = [neighbour.shrink_allowance(now) for neighbour in self._neighbours]
                self._late = any(allowances)
            self._regular_s += self._interval_s * ((now - self._regular_s) // self._interval_s + 1)
        return events + self._speak(now, everywhere=regular)

    def set_digest(self, digest: int) -> None:
        """Tell the neighbours this digest of the link-state database from the next hello on."""
        self._digest = digest

    def neighbours(self) -> list[Neighbour]:
        """All that the topology promises."""
        return self._neighbours

    def digest(self, hop: Hop) -> int:
        """The digest that `hop` told last, 0 if it is none of the neighbours."""
        port = self._ports.get(hop.port)
        return port.neighbours[hop.node].digest if port and hop.node in port.neighbours else 0

    def complete(self) -> bool:
        """Whether all neighbours that the topology promises are up."""
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
        if up and now < neighbour.damped_s:
            self._damped.add(neighbour)
            return []
        neighbour.up = up
        if up:
            # the first time is no return
            neighbour.back_s = now if neighbour.damped_s > -inf else -inf
        else:
            flaps = now < neighbour.back_s + STEADY * self._damp_s
            neighbour.rests_s = (
                min(max(2 * neighbour.rests_s, self._damp_s), self._most_damp_s) if flaps else 0.0
            )
            neighbour.damped_s = now + neighbour.rests_s
        self._counters["downs"] += not up
        port, node = neighbour.hop
        name = self.name(node)
        text = f"port {port}: neighbour {name} {'up' if up else 'down'}: {why}"
        return [NeighbourChanged(neighbour.hop, up), NeighbourNote(text, port, name, up, why)]

    def _silence(self, neighbour: Neighbour, why: str, now: float) -> list[HelloOutcome]:
        """It is not heard any more."""
        if neighbour.heard:
            neighbour.heard = False
            at = self._ports[neighbour.hop.port]
            at.known.pop(neighbour.body, None)
            at.body = None
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
        return wire.hello_body(self.node, self._incarnation, self._interval_ms, self._digest, heard)

    def _speak(self, now: float, everywhere: bool = False) -> list[HelloOutcome]:
        """Send what has to be sent now, and find the next deadline."""
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
                port.sent_s, port.due_s = now, inf
            if port.due_s < deadline:
                deadline = port.due_s
        self._counters["hellos_sent"] += len(events)
        dies_s = inf
        for neighbour in self._neighbours:
            if neighbour.heard:
                at = neighbour.heard_s + neighbour.dead_s + neighbour.lateness_s
                if at < dies_s:
                    dies_s = at
        self._dies_s = dies_s
        self.deadline = deadline if deadline < dies_s else dies_s
        return events
