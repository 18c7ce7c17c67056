"""Link state within a scope: every node of the scope learns which links of every other are live.

A node advertises its live links under a sequence number that begins at its incarnation, whenever
they change and every third of the lifetime.  What changes again and again is advertised at growing
intervals (as OSPF does, RFC 4222): when hundreds of nodes start together, their neighbours come one
by one.  Whoever hears a newer advertisement keeps it and passes it on at every port but the one it
came in by: a port speaks to all its neighbours at once.  What is to be passed on within `gap_s`
leaves in one message.  Whoever hears itself advertised with a sequence number that it has not
reached (its clock went back before it started again) jumps past it.  An advertisement that is not
renewed within its lifetime is dropped; the time that is left travels with it, and nobody believes
it for longer than our own are to be believed (RFC 2328's MaxAge).  Sequence numbers do not wrap;
how large one may be, sequence_limit.py says.  Of two advertisements with one sequence number and
other links, which only a bit that flipped or a forger can make, all keep the one with the larger
check sum (RFC 2328, section 13.1), until the origin hears it and contradicts.

Nothing is acknowledged.  Instead each hello carries a digest of the sender's database.  When a
neighbour comes up with another digest than ours, and when its digest has differed and neither has
changed for `settle_s` (longer than a hello takes to tell a change that has arrived already), we
send it a summary of what we have; it answers with what we lack or have only older.  As it sees the
same difference, it does the same, and so both end with the newest of both.  On a slow machine news
and answers are on their way for longer, and summaries would slow them further: where our own ticks
are late, the wait is longer by LATE times their lateness, which is forgotten by an eighth with each
tick.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any
from zlib import crc32

from weft.daemons.control.sequence_limit import SequenceLimit
from weft.daemons.core import wire
from weft.daemons.core.actions import Hop, Send
from weft.daemons.core.mixing import mixed

MOST_S = 0.1  # that backoff() grows to
LATE = 4  # wait before a summary, in lateness of our own ticks
MOST_PATIENCE = 16  # times settle_s, with a neighbour whose database differs, while either changes


@dataclass(frozen=True, slots=True)
class LinkStateEntry:
    """What one origin said last; links as in wire.Advertisement, check: of them."""

    sequence: int
    links: bytes
    expires_s: float
    check: int

    def neighbours(self) -> set[int]:
        """To whom it has live links."""
        return {node for _, node in wire.unpack_links(self.links)}


class Database:
    """The link-state database of `node`.

    ports: by port, the neighbours there that are of the scope.
    incarnation: as in hello.py, below 2^63.
    scope: the origins that are kept; None for all.
    lifetime_ms: of our own advertisements, and the most of others'.
    changes: goes up whenever our links or those of any origin change; what renews them does not
        count.
    phase_fraction: spreads the refreshes of nodes that were started together.
    """

    def __init__(
        self,
        node: int,
        ports: Mapping[int, Sequence[int]],
        *,
        incarnation: int,
        scope: Container[int] | None = None,
        lifetime_ms: int = 300_000,
        settle_s: float = 0.060,
        gap_s: float = 0.002,
        phase_fraction: float = 1.0,
    ) -> None:
        self.node = node
        self.deadline = inf
        self.digest = 0
        self.changes = 0
        self.entries: dict[int, LinkStateEntry] = {}
        self._ports = {port: frozenset(nodes) for port, nodes in ports.items() if nodes}
        self._sequence = incarnation
        self._limit = SequenceLimit(incarnation)
        self._scope = scope
        self._lifetime_ms = lifetime_ms
        self._settle_s, self._gap_s = settle_s, gap_s
        self._refresh_s = lifetime_ms / 3000 * (0.75 + 0.25 * phase_fraction)
        self._live: set[Hop] = set()
        self._stale = True  # our own advertisement does not say what it should
        self._originated_s = self._purge_s = -inf
        self._wait_s = gap_s  # at the least, from one advertisement of ours to another one
        # origins to tell, in order
        self._pending: dict[int, dict[int, None]] = {port: {} for port in self._ports}
        self._sent_s = dict.fromkeys(self._ports, -inf)
        self._told: dict[Hop, int] = {}  # digests of the neighbours that are up
        # since when, or since our last summary, it has not been ours
        self._differs_s: dict[Hop, float] = {}
        self._changed_s: dict[Hop, float] = {}  # when it changed
        self._own_changed_s = -inf
        self._late_s = 0.0  # how late our ticks have been of late
        self._counters = {
            "advertisements_heard": 0,
            "advertisements_new": 0,
            "advertisements_refused": 0,
            "summaries_sent": 0,
        }

    def start(self, now: float) -> list[Send]:
        """Advertise that there is no live link yet."""
        self._limit.holds(self._sequence, now)
        return self._turn(now)

    def neighbour_changed(self, hop: Hop, up: bool, digest: int, now: float) -> list[Send]:
        """`hop`, of the scope or not, came up with this digest, or is up no longer."""
        (self._live.add if up else self._live.discard)(hop)
        self._stale = True
        self.changes += 1
        self._told.pop(hop, None)
        self._agree(hop)
        if up and self._is_neighbour(*hop):
            self._told[hop] = digest
            if digest != self.digest:
                self._differs_s[hop] = -inf  # nothing of ours is on its way to it
        return self._turn(now)

    def heard_digest(self, hop: Hop, digest: int, now: float) -> list[Send]:
        """`hop` says hello with this digest."""
        if self._told.get(hop, digest) == digest:
            return []
        self._told[hop], self._changed_s[hop] = digest, now
        return self._turn(now)

    def receive(self, message: wire.LinkStates | wire.Summary, port: int, now: float) -> list[Send]:
        """A neighbour's advertisements or summary; those of others are dropped.

        What is new is passed on by tick(), which is due at once: where many came together, one
        message has them all.
        """
        if not self._is_neighbour(port, message.sender):
            return []
        if isinstance(message, wire.LinkStates):
            for each in message.advertisements:
                self._learn(each, port, now)
            return []
        return self._answer(message, port, now) if message.target == self.node else []

    def tick(self, now: float) -> list[Send]:
        """Refresh, drop what has expired, send what had to wait."""
        late_s = now - self.deadline
        actions = self._turn(now)
        self._late_s = max(late_s, self._late_s * 7 / 8)
        return actions

    def graph(self) -> dict[int, tuple[int, ...]]:
        """The live links as neighbours of each node: those that both ends advertise."""
        said = {origin: entry.neighbours() for origin, entry in self.entries.items()}
        none: set[int] = set()
        return {
            origin: tuple(sorted(other for other in others if origin in said.get(other, none)))
            for origin, others in said.items()
        }

    def agreed(self) -> bool:
        """Whether every neighbour that is up has the same database and has been told all of
        ours."""
        return not self._stale and all(digest == self.digest for digest in self._told.values())

    def status(self) -> dict[str, Any]:
        return {"origins": len(self.entries), "digest": f"{self.digest:016x}", **self._counters}

    def _is_neighbour(self, port: int, node: int) -> bool:
        return port in self._ports and node in self._ports[port]

    def _learn(self, heard: wire.Advertisement, port: int, now: float) -> None:
        self._counters["advertisements_heard"] += 1
        origin, sequence = heard.origin, heard.sequence
        if not heard.lifetime_ms:
            return
        if not self._limit.holds(sequence, now) or (
            self._scope is not None and origin not in self._scope
        ):
            self._counters["advertisements_refused"] += 1
            return
        held, check = self.entries.get(origin), crc32(heard.links)
        if origin == self.node:
            if sequence > self._sequence or (
                held and sequence == held.sequence and heard.links != held.links
            ):
                self._sequence = sequence
                self._stale = True
                self.deadline = now
            return
        if held is None or (sequence, check) > (held.sequence, held.check):
            self._counters["advertisements_new"] += 1
            lifetime_ms = min(heard.lifetime_ms, self._lifetime_ms)
            self._keep(
                origin, LinkStateEntry(sequence, heard.links, now + lifetime_ms / 1000, check)
            )
            self._pass_on(origin)
            self.deadline = self._own_changed_s = now
        kept = self.entries[origin]
        if kept.sequence == sequence and kept.check == check:  # everybody at that port has it
            self._pending[port].pop(origin, None)

    def _answer(self, summary: wire.Summary, port: int, now: float) -> list[Send]:
        """Send what the summary lacks."""
        theirs = {origin: said for origin, *said in summary.entries}
        lacking = [
            origin
            for origin, entry in self.entries.items()
            if summary.first <= origin <= summary.last
            and [entry.sequence, entry.check] > theirs.get(origin, [])
        ]
        return [
            Send(port, payload)
            for payload in wire.packed(self.node, self._advertisements(lacking, now))
        ]

    def _keep(self, origin: int, entry: LinkStateEntry) -> None:
        held = self._drop(origin)
        self.entries[origin] = entry
        self.digest ^= told(origin, entry)
        self.changes += held is None or held.links != entry.links
        self._purge_s = min(self._purge_s, entry.expires_s)

    def _drop(self, origin: int) -> LinkStateEntry | None:
        held = self.entries.pop(origin, None)
        if held:
            self.digest ^= told(origin, held)
        return held

    def _pass_on(self, origin: int) -> None:
        for pending in self._pending.values():
            pending[origin] = None

    def _advertisements(self, origins: Iterable[int], now: float) -> list[wire.Advertisement]:
        """Those of `origins` that are still held and have time left."""
        held = [(origin, self.entries[origin]) for origin in origins if origin in self.entries]
        return [
            wire.Advertisement(origin, entry.sequence, left_ms, entry.links)
            for origin, entry in held
            if (left_ms := int((entry.expires_s - now) * 1000)) > 0
        ]

    def _turn(self, now: float) -> list[Send]:
        """Do all that is due, and find the next deadline."""
        if now >= self._originated_s + (self._wait_s if self._stale else self._refresh_s):
            self._sequence += 1
            self._wait_s = backoff(self._wait_s, now - self._originated_s, self._gap_s)
            self._stale, self._originated_s = False, now
            self._own_changed_s = now
            links, expires_s = wire.pack_links(sorted(self._live)), now + self._lifetime_ms / 1000
            self._keep(self.node, LinkStateEntry(self._sequence, links, expires_s, crc32(links)))
            self._pass_on(self.node)
        if now >= self._purge_s:
            for origin in [
                origin for origin, entry in self.entries.items() if entry.expires_s <= now
            ]:
                self._drop(origin)
                self.changes += 1
            self._purge_s = min((entry.expires_s for entry in self.entries.values()), default=inf)
        actions = []
        live = {hop.port for hop in self._told}
        for port, pending in self._pending.items():
            if port not in live:
                pending.clear()  # who comes up there later gets it by summary
            elif pending and now >= self._sent_s[port] + self._gap_s:
                payloads = wire.packed(self.node, self._advertisements(pending, now))
                actions += [Send(port, payload) for payload in payloads]
                pending.clear()
                self._sent_s[port] = now
        actions += self._reconcile(now)
        self.deadline = min(
            self._originated_s + (self._wait_s if self._stale else self._refresh_s),
            self._purge_s,
            min(
                (
                    self._sent_s[port] + self._gap_s
                    for port, pending in self._pending.items()
                    if pending
                ),
                default=inf,
            ),
            min(map(self._summary_s, self._differs_s), default=inf),
        )
        return actions

    def _agree(self, hop: Hop) -> None:
        """Its digest is ours, or counts no more."""
        self._differs_s.pop(hop, None)
        self._changed_s.pop(hop, None)

    def _summary_s(self, hop: Hop) -> float:
        """Return the time of the next summary for a neighbour that differs: after neither digest
        has changed for a while.  A digest that changes announces news on its way, which a summary
        would only delay."""
        since_s = self._differs_s[hop]
        settle_s = self._settle_s + LATE * self._late_s
        calm_s = max(since_s, self._own_changed_s, self._changed_s.get(hop, -inf)) + settle_s
        return min(calm_s, since_s + MOST_PATIENCE * settle_s)

    def _reconcile(self, now: float) -> list[Send]:
        """A summary for each neighbour whose digest has differed too long."""
        actions = []
        for hop, digest in self._told.items():
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


def told(origin: int, entry: LinkStateEntry) -> int:
    """The part that what `origin` said last has in a digest."""
    return mixed(origin, entry.sequence + (entry.check << 32))


def backoff(wait_s: float, since_s: float, least_s: float) -> float:
    """How long to wait before doing something the next time, having waited `wait_s` at the least
    and done it `since_s` after the last time: four times as long where it is asked for again and
    again, up to MOST_S; else `least_s`."""
    return max(least_s, min(4 * wait_s, MOST_S)) if since_s < 4 * wait_s else least_s
