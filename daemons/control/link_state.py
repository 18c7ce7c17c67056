"""Link state within a scope: every node learns the live links of all other nodes of the scope.

A node advertises its live links after each change, at growing intervals if changes go on (RFC
4222), and at every third of the lifetime.  Nodes forward newer advertisements at all other ports.
An advertisement expires after its lifetime, which travels with it (compare MaxAge in RFC 2328).  An
origin that hears itself with a higher sequence number jumps past that number.  Of two
advertisements with one number, all nodes keep the one with the larger check sum (RFC 2328, 13.1).

There are no acknowledgements.  Hellos carry a digest of the database.  A node whose digest differs
from a neighbour's for `settle_s` sends a summary, and the neighbour answers with what is missing or
newer.  On a slow machine news is under way for longer: the wait grows by LATE times the lateness of
our own ticks, of which at most MOST_LATE_S count.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any
from zlib import crc32

from weft.daemons.core import wire
from weft.daemons.core.actions import Hop, Send
from weft.daemons.core.mixing import mixed

MOST_AHEAD = 1 << 61  # nanoseconds: 73 years


class SequenceLimit:
    """Limit of flooded sequence numbers, at a node that started with `incarnation`.

    Sequence numbers of an origin begin at its incarnation, in nanoseconds since 1970.  A forged or
    corrupted number could be the largest of its field, and leave the origin no number to contradict
    it (compare RFC 2328, 12.1.6).  Numbers beyond a limit are therefore ignored.  The limit grows
    faster than any origin counts, so that an origin can always go past a number that was accepted.
    It leaves room for clocks that are wrong by decades.
    """

    def __init__(self, incarnation: int) -> None:
        self._incarnation = incarnation
        self._began_s: float | None = None

    def holds(self, sequence: int, now: float) -> bool:
        """Return True if `sequence` is within the limit; time counts from the first call."""
        if self._began_s is None:
            self._began_s = now
        return sequence <= self._incarnation + MOST_AHEAD + int((now - self._began_s) * 1e9)


GAP_S = 0.002  # shortest time between two messages at a port
MOST_S = 0.1  # longest wait of backoff()
LATE = 4  # additional wait before a summary, in lateness of our own ticks
MOST_LATE_S = 1.0  # a machine that slept an hour must not wait for hours
MOST_PATIENCE = 16  # longest wait before a summary while digests change, in settle_s
COUNTERS = (
    "advertisements_heard",
    "advertisements_new",
    "advertisements_refused",
    "summaries_sent",
)


@dataclass(frozen=True, slots=True)
class LinkStateEntry:
    """Newest advertisement of one origin.

    links: as in wire.Advertisement.
    check: check sum of the links.
    """

    sequence: int
    links: bytes
    expires_s: float
    check: int

    def neighbours(self) -> set[int]:
        """Return the nodes to which the origin has live links."""
        return {node for _, node in wire.unpack_links(self.links)}


# origins to forward, in order
OriginQueue = dict[int, None]


class Database:
    """Link-state database of one node.

    Args:
        node: number of the node.
        ports: neighbours of the scope at each port.
        incarnation: as in hello.py, below 2^63.
        scope: origins that it stores; None for all.
        lifetime_ms: lifetime of our advertisements, and the longest of others'.
        settle_s: time without change of either digest before a summary.
        phase_fraction: spreads the refreshes of nodes that start together.

    Attributes:
        changes: number of changes of links so far; refreshes do not count.
        digest: of the whole database.
    """

    deadline = inf
    digest = 0
    changes = 0
    _stale = True  # our advertisement is outdated
    _originated_s = -inf
    _purge_s = -inf
    _own_changed_s = -inf
    _late_s = 0.0  # recent lateness of our ticks

    def __init__(
        self,
        node: int,
        ports: Mapping[int, Sequence[int]],
        *,
        incarnation: int,
        scope: Container[int] | None = None,
        lifetime_ms: int = 300_000,
        settle_s: float = 0.060,
        phase_fraction: float = 1.0,
    ) -> None:
        self.node = node
        self.entries: dict[int, LinkStateEntry] = {}
        self._ports = {port: frozenset(nodes) for port, nodes in ports.items() if nodes}
        self._pending = {port: OriginQueue() for port in self._ports}
        self._sequence = incarnation
        self._limit = SequenceLimit(incarnation)
        self._scope = scope
        self._lifetime_ms = lifetime_ms
        self._settle_s = settle_s
        self._refresh_s = lifetime_ms / 3000 * (0.75 + 0.25 * phase_fraction)
        self._live: set[Hop] = set()
        self._wait_s = GAP_S  # shortest time between two of our advertisements
        self._sent_s = dict.fromkeys(self._ports, -inf)
        self._digests: dict[Hop, int] = {}  # of the neighbours that are up
        # neighbours with another digest, and the time of the difference or of our last summary
        self._differs_s: dict[Hop, float] = {}
        self._changed_s: dict[Hop, float] = {}  # time of the last change of their digest
        self._counters = dict.fromkeys(COUNTERS, 0)

    def start(self, now: float) -> list[Send]:
        """Advertise no live links."""
        self._limit.holds(self._sequence, now)
        return self._turn(now)

    def neighbour_changed(self, hop: Hop, up: bool, digest: int, now: float) -> list[Send]:
        """Process a change of `hop`, of any scope, to up with `digest`, or to down."""
        (self._live.add if up else self._live.discard)(hop)
        self._stale = True
        self.changes += 1
        self._digests.pop(hop, None)
        self._agree(hop)
        if up and self._is_neighbour(*hop):
            self._digests[hop] = digest
            if digest != self.digest:
                self._differs_s[hop] = -inf  # nothing of ours is under way to it
        return self._turn(now)

    def heard_digest(self, hop: Hop, digest: int, now: float) -> list[Send]:
        """Process the digest of a hello from `hop`."""
        if self._digests.get(hop, digest) == digest:
            return []
        self._digests[hop] = digest
        self._changed_s[hop] = now
        return self._turn(now)

    def receive(self, message: wire.LinkStates | wire.Summary, port: int, now: float) -> list[Send]:
        """Process advertisements or a summary of a neighbour; drop those of other nodes.

        New advertisements are forwarded by tick(), due at once: one message for all that arrived
        together.
        """
        if not self._is_neighbour(port, message.sender):
            return []
        if isinstance(message, wire.LinkStates):
            for advertisement in message.advertisements:
                self._learn(advertisement, port, now)
            return []
        return self._answer(message, port, now) if message.target == self.node else []

    def tick(self, now: float) -> list[Send]:
        """Refresh our advertisement, drop expired ones, and send what is due."""
        late_s = now - self.deadline
        actions = self._turn(now)
        self._late_s = min(max(late_s, self._late_s * 7 / 8), MOST_LATE_S)
        return actions

    def graph(self) -> dict[int, tuple[int, ...]]:
        """Return the neighbours of each node over live links, which both ends advertise."""
        advertised = {origin: entry.neighbours() for origin, entry in self.entries.items()}
        none: set[int] = set()
        return {
            origin: tuple(
                sorted(other for other in others if origin in advertised.get(other, none))
            )
            for origin, others in advertised.items()
        }

    def agreed(self) -> bool:
        """Return True if all neighbours that are up have our database and our newest links."""
        return not self._stale and all(digest == self.digest for digest in self._digests.values())

    def status(self) -> dict[str, Any]:
        return {"origins": len(self.entries), "digest": f"{self.digest:016x}", **self._counters}

    def _is_neighbour(self, port: int, node: int) -> bool:
        return port in self._ports and node in self._ports[port]

    def _learn(self, advertisement: wire.Advertisement, port: int, now: float) -> None:
        """Store an advertisement that came in at `port`, if it is newer."""
        self._counters["advertisements_heard"] += 1
        origin = advertisement.origin
        sequence = advertisement.sequence
        if not advertisement.lifetime_ms:
            return
        in_scope = self._scope is None or origin in self._scope
        if not self._limit.holds(sequence, now) or not in_scope:
            self._counters["advertisements_refused"] += 1
            return
        if origin == self.node:
            self._contradict(advertisement, now)
            return
        stored = self.entries.get(origin)
        check = crc32(advertisement.links)
        if stored is None or (sequence, check) > (stored.sequence, stored.check):
            self._counters["advertisements_new"] += 1
            expires_s = now + min(advertisement.lifetime_ms, self._lifetime_ms) / 1000
            stored = LinkStateEntry(sequence, advertisement.links, expires_s, check)
            self._keep(origin, stored)
            self._pass_on(origin)
            self.deadline = self._own_changed_s = now
        if stored.sequence == sequence and stored.check == check:  # all at that port have it
            self._pending[port].pop(origin, None)

    def _contradict(self, advertisement: wire.Advertisement, now: float) -> None:
        """Jump past the sequence number of an advertisement in our name that is not ours."""
        sequence = advertisement.sequence
        own = self.entries.get(self.node)
        altered = own and sequence == own.sequence and advertisement.links != own.links
        if sequence > self._sequence or altered:
            self._sequence = sequence
            self._stale = True
            self.deadline = now

    def _answer(self, summary: wire.Summary, port: int, now: float) -> list[Send]:
        """Return the advertisements that the summary lacks, or has older."""
        versions = {origin: version for origin, *version in summary.entries}
        missing = [
            origin
            for origin, entry in self.entries.items()
            if summary.first <= origin <= summary.last
            and [entry.sequence, entry.check] > versions.get(origin, [])
        ]
        return self._packed(port, missing, now)

    def _packed(self, port: int, origins: Iterable[int], now: float) -> list[Send]:
        """Return messages with the advertisements of `origins` for `port`."""
        advertisements = self._advertisements(origins, now)
        return [Send(port, payload) for payload in wire.packed(self.node, advertisements)]

    def _keep(self, origin: int, entry: LinkStateEntry) -> None:
        previous = self._drop(origin)
        self.entries[origin] = entry
        self.digest ^= digest_part(origin, entry)
        self.changes += previous is None or previous.links != entry.links
        self._purge_s = min(self._purge_s, entry.expires_s)

    def _drop(self, origin: int) -> LinkStateEntry | None:
        entry = self.entries.pop(origin, None)
        if entry:
            self.digest ^= digest_part(origin, entry)
        return entry

    def _pass_on(self, origin: int) -> None:
        for pending in self._pending.values():
            pending[origin] = None

    def _advertisements(self, origins: Iterable[int], now: float) -> list[wire.Advertisement]:
        """Return the advertisements of those of `origins` that have not expired."""
        advertisements = []
        for origin in origins:
            entry = self.entries.get(origin)
            lifetime_ms = int((entry.expires_s - now) * 1000) if entry else 0
            if entry and lifetime_ms > 0:
                advertisements.append(
                    wire.Advertisement(origin, entry.sequence, lifetime_ms, entry.links)
                )
        return advertisements

    def _turn(self, now: float) -> list[Send]:
        """Return the messages that are due, and set the next deadline."""
        if now >= self._originates_s():
            self._originate(now)
        if now >= self._purge_s:
            self._purge(now)
        actions = self._forward(now) + self._reconcile(now)
        sends_s = [self._sent_s[port] + GAP_S for port, pending in self._pending.items() if pending]
        summaries_s = map(self._summary_s, self._differs_s)
        self.deadline = min(self._originates_s(), self._purge_s, *sends_s, *summaries_s)
        return actions

    def _originates_s(self) -> float:
        """Return the time of our next advertisement."""
        return self._originated_s + (self._wait_s if self._stale else self._refresh_s)

    def _originate(self, now: float) -> None:
        """Store a new advertisement of our links, to be forwarded."""
        self._sequence += 1
        self._wait_s = backoff(self._wait_s, now - self._originated_s, GAP_S)
        self._stale = False
        self._originated_s = self._own_changed_s = now
        links = wire.pack_links(sorted(self._live))
        expires_s = now + self._lifetime_ms / 1000
        self._keep(self.node, LinkStateEntry(self._sequence, links, expires_s, crc32(links)))
        self._pass_on(self.node)

    def _purge(self, now: float) -> None:
        """Drop expired advertisements."""
        for origin, entry in list(self.entries.items()):
            if entry.expires_s <= now:
                self._drop(origin)
                self.changes += 1
        self._purge_s = min((entry.expires_s for entry in self.entries.values()), default=inf)

    def _forward(self, now: float) -> list[Send]:
        """Return the pending advertisements of each port that may send."""
        actions: list[Send] = []
        live = {hop.port for hop in self._digests}
        for port, pending in self._pending.items():
            if port not in live:
                pending.clear()  # a neighbour that comes up later gets them by summary
            elif pending and now >= self._sent_s[port] + GAP_S:
                actions += self._packed(port, pending, now)
                pending.clear()
                self._sent_s[port] = now
        return actions

    def _agree(self, hop: Hop) -> None:
        """Forget the difference from the digest of `hop`."""
        self._differs_s.pop(hop, None)
        self._changed_s.pop(hop, None)

    def _summary_s(self, hop: Hop) -> float:
        """Return the time of the next summary for a neighbour that differs.

        A summary waits until both digests rest: a change announces news, which it would delay.
        """
        since_s = self._differs_s[hop]
        settle_s = self._settle_s + LATE * self._late_s
        calm_s = max(since_s, self._own_changed_s, self._changed_s.get(hop, -inf)) + settle_s
        return min(calm_s, since_s + MOST_PATIENCE * settle_s)

    def _reconcile(self, now: float) -> list[Send]:
        """Return a summary for each neighbour whose digest has differed too long."""
        actions = []
        for hop, digest in self._digests.items():
            if digest == self.digest:
                self._agree(hop)
                continue
            self._differs_s.setdefault(hop, now)
            if now >= self._summary_s(hop):
                self._differs_s[hop] = now
                self._counters["summaries_sent"] += 1
                entries = sorted(
                    (origin, entry.sequence, entry.check) for origin, entry in self.entries.items()
                )
                actions += [
                    Send(hop.port, payload)
                    for payload in wire.summaries(self.node, hop.node, entries)
                ]
        return actions


def digest_part(origin: int, entry: LinkStateEntry) -> int:
    """Return the contribution of one entry to the digest of a database."""
    return mixed(origin, entry.sequence + (entry.check << 32))


def backoff(wait_s: float, since_s: float, least_s: float) -> float:
    """Return the wait before the next repetition of something.

    Four times `wait_s`, up to MOST_S, if it is requested again and again; else `least_s`.

    Args:
        wait_s: shortest wait before the last time.
        since_s: time between the last two times.
        least_s: wait without repetition.
    """
    return max(least_s, min(4 * wait_s, MOST_S)) if since_s < 4 * wait_s else least_s
