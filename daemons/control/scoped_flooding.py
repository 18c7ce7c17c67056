"""Notices flooded within a few hops: each origin's last word reaches everybody that near, and is
believed for a time.

An origin says its notice under a sequence number that begins at its incarnation (how large it may
be, and why, sequence_limit.py says).  Whoever hears a newer one keeps it
and passes it on where its protocol says, but never where it came from, with one hop less to go.
The same notice that comes again with more hops left, by a shorter way that was slower, is passed on
again: else its scope would end early.

Nothing is acknowledged.  What has changed is said `repeats` times, a gap apart and each time under
a new number, so that a lost packet anywhere is made good by the next one; what is not empty is said
again every third of its lifetime, and dropped by those who have not heard it for a lifetime, their
own at the most.  A neighbour that comes up is told all that is held.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Generic, NamedTuple, TypeVar

from weft.daemons.control.sequence_limit import SequenceLimit
from weft.daemons.core.actions import Send
from weft.daemons.core.wire import MalformedMessage

NoticeBody = TypeVar("NoticeBody")


@dataclass(frozen=True, slots=True)
class Notice(Generic[NoticeBody]):
    """What `origin` says, which `sender` passes on to its neighbour `target`.

    sequence: larger in each notice of one origin and kind.
    lifetime_ms: how much longer it may be believed.
    hops: how many more it may travel.
    """

    sender: int
    target: int
    origin: int
    sequence: int
    lifetime_ms: int
    hops: int
    body: NoticeBody


class HeldNotice(NamedTuple, Generic[NoticeBody]):
    """What an origin said last, until when it is believed, and the port at which it came in."""

    notice: Notice[NoticeBody]
    expires_s: float
    port: int


class Notices(Generic[NoticeBody]):
    """The notices of one kind that `node` says, hears and passes on.

    neighbours: by port, who is there.
    says_at: the ports at which its own leave.
    onward: (notice, port) -> the ports at which one that came in there is passed on.
    scope: how many hops a notice of its own travels.
    encode: a notice -> the bytes of its message.
    empty: whether a body says nothing, and need not be refreshed.
    """

    def __init__(
        self,
        node: int,
        neighbours: Mapping[int, int],
        *,
        incarnation: int,
        says_at: Collection[int],
        onward: Callable[[Notice[NoticeBody], int], Collection[int]],
        scope: int,
        empty: Callable[[NoticeBody], bool],
        encode: Callable[[Notice[NoticeBody]], bytes],
        lifetime_ms: int,
        repeats: int = 3,
        gap_s: float = 0.030,
    ) -> None:
        self.deadline = inf
        self.held: dict[int, HeldNotice[NoticeBody]] = {}
        self._node, self._neighbours = node, dict(neighbours)
        self._sequence = incarnation
        self._limit = SequenceLimit(incarnation)
        self._says_at, self._onward, self._scope = tuple(says_at), onward, scope
        self._empty, self._encode = empty, encode
        self._lifetime_ms = lifetime_ms
        self._repeats, self._gap_s = repeats, gap_s
        self._body: NoticeBody | None = None
        self._left = 0  # how often it has yet to be repeated
        self._due_s = inf

    def say(self, body: NoticeBody, now: float) -> list[Send]:
        """Tell everybody `body`, unless that is what was said last."""
        if body == self._body or (self._body is None and self._empty(body)):
            return []
        self._body, self._left = body, self._repeats
        return self._say_again(now)

    def hear(self, notice: Notice[NoticeBody], port: int, now: float) -> tuple[bool, list[Send]]:
        """A notice that came in at `port`: whether it says something new, and what to pass on.

        MalformedMessage if it is of no neighbour at that port."""
        if self._neighbours.get(port) != notice.sender:
            raise MalformedMessage(f"node {notice.sender} is no neighbour at port {port}")
        if notice.target != self._node or notice.lifetime_ms == 0:
            return False, []
        if not self._limit.holds(notice.sequence, now) or notice.hops >= self._scope:
            return False, []
        # said by a predecessor whose clock was ahead of ours, or in our name
        if notice.origin == self._node:
            return False, self._contradict(notice, now)
        held = self.held.get(notice.origin)
        if held and (notice.sequence, notice.hops) <= (held.notice.sequence, held.notice.hops):
            return False, []
        lifetime_ms = min(notice.lifetime_ms, self._lifetime_ms)
        self.held[notice.origin] = HeldNotice(notice, now + lifetime_ms / 1000, port)
        self._find_deadline()
        ports = (
            [other for other in self._onward(notice, port) if other != port] if notice.hops else []
        )
        is_news = held is None or held.notice.body != notice.body
        return is_news, [self._send(notice, other, notice.hops - 1) for other in ports]

    def _contradict(self, notice: Notice[NoticeBody], now: float) -> list[Send]:
        """Somebody says `notice` of this node: jump past its number, and say what is true if that
        is something else."""
        if notice.sequence <= self._sequence:
            return []
        self._sequence = notice.sequence
        if self._body is None or self._body == notice.body:
            return []
        self._left = self._repeats
        return self._say_again(now)

    def tell(self, port: int, now: float) -> list[Send]:
        """All that is held, for the neighbour at `port` that has come up."""
        sends = []
        if self._body is not None and not self._empty(self._body) and port in self._says_at:
            sends.append(self._send(self._own(), port, self._scope - 1))
        for notice, expires_s, came in self.held.values():
            left_ms = int((expires_s - now) * 1000)
            back = port == came or notice.origin == self._neighbours[port]
            if notice.hops and left_ms > 0 and not back and port in self._onward(notice, came):
                sends.append(
                    self._send(replace(notice, lifetime_ms=left_ms), port, notice.hops - 1)
                )
        return sends

    def tick(self, now: float) -> tuple[bool, list[Send]]:
        """Whether something that was believed is no longer, and what is to be said again."""
        old = [origin for origin, held in self.held.items() if held.expires_s <= now]
        forgotten = [self.held.pop(origin) for origin in old]
        sends = self._say_again(now) if self._due_s <= now else []
        self._find_deadline()
        return any(not self._empty(held.notice.body) for held in forgotten), sends

    def _say_again(self, now: float) -> list[Send]:
        assert self._body is not None
        self._sequence += 1
        self._left -= self._left > 0
        if self._left:
            self._due_s = now + self._gap_s
        else:
            self._due_s = inf if self._empty(self._body) else now + self._lifetime_ms / 3000
        self._find_deadline()
        return [self._send(self._own(), port, self._scope - 1) for port in self._says_at]

    def _own(self) -> Notice[NoticeBody]:
        assert self._body is not None
        return Notice(self._node, 0, self._node, self._sequence, self._lifetime_ms, 0, self._body)

    def _send(self, notice: Notice[NoticeBody], port: int, hops: int) -> Send:
        onward = replace(notice, sender=self._node, target=self._neighbours[port], hops=hops)
        return Send(port, self._encode(onward))

    def _find_deadline(self) -> None:
        self.deadline = min(
            self._due_s, min((held.expires_s for held in self.held.values()), default=inf)
        )
