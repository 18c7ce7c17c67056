"""Notices flooded within a number of hops: each node nearby stores the last notice of an origin.

A node stores a newer notice and forwards it with one hop less, never to the port it came from.  It
forwards the same notice again if it comes with more hops left; otherwise the scope would end early.

There are no acknowledgements.  A change is sent `repeats` times, `gap_s` apart, each time under a
new sequence number.  A notice that is not empty is repeated every third of its lifetime and expires
after it.  A neighbour that comes up receives all stored notices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from math import inf
from typing import Generic, NamedTuple, TypeVar

from weft.daemons.control.link_state import SequenceLimit
from weft.daemons.core.actions import Send
from weft.daemons.core.message_formats import U8, U32, U64, MalformedMessage

NoticeBody = TypeVar("NoticeBody")


class Notice(NamedTuple, Generic[NoticeBody]):
    """Notice of `origin`, forwarded by `sender` to its neighbour `target`.

    sequence: larger in each notice of one origin and kind.
    lifetime_ms: remaining validity.
    hops: hops that it may still travel.
    """

    sender: U32
    target: U32
    origin: U32
    sequence: U64
    lifetime_ms: U32
    hops: U8
    body: NoticeBody


class HeldNotice(NamedTuple, Generic[NoticeBody]):
    """Last notice of an origin, its expiry, and the port at which it came in."""

    notice: Notice[NoticeBody]
    expires_s: float
    port: int


class Notices(Generic[NoticeBody]):
    """Notices of one kind that one node originates, stores and forwards.

    Args:
        node: number of the node.
        neighbours: neighbour at each port.
        incarnation: first sequence number, see SequenceLimit.
        says_at: ports at which its own notices leave.
        onward: (notice, port) -> ports to which a notice that came in at `port` is forwarded.
        scope: hops that its own notices travel.
        empty: (body) -> True if the body says nothing and needs no refresh.
        encode: (notice) -> bytes of its message.
        lifetime_ms: lifetime of its notices, and the longest of others'.
        repeats: messages for each change.
        gap_s: time between them.
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
        self.notices: dict[int, HeldNotice[NoticeBody]] = {}
        self._node = node
        self._neighbours = dict(neighbours)
        self._sequence = incarnation
        self._limit = SequenceLimit(incarnation)
        self._says_at = tuple(says_at)
        self._onward = onward
        self._scope = scope
        self._empty = empty
        self._encode = encode
        self._lifetime_ms = lifetime_ms
        self._repeats = repeats
        self._gap_s = gap_s
        self._body: NoticeBody | None = None
        self._left = 0  # repetitions still to send
        self._due_s = inf

    def say(self, body: NoticeBody, now: float) -> list[Send]:
        """Return messages with `body` for all neighbours; none if it has not changed."""
        if body == self._body or (self._body is None and self._empty(body)):
            return []
        self._body = body
        self._left = self._repeats
        return self._say_again(now)

    def hear(self, notice: Notice[NoticeBody], port: int, now: float) -> tuple[bool, list[Send]]:
        """Process a notice that came in at `port`.

        Returns:
            True if its body is new, and the messages that forward it.

        Raises:
            MalformedMessage: the sender is no neighbour at `port`.
        """
        if self._neighbours.get(port) != notice.sender:
            raise MalformedMessage(f"node {notice.sender} is no neighbour at port {port}")
        if notice.target != self._node or notice.lifetime_ms == 0:
            return False, []
        if not self._limit.holds(notice.sequence, now) or notice.hops >= self._scope:
            return False, []
        if notice.origin == self._node:  # of a predecessor whose clock was ahead, or forged
            return False, self._contradict(notice, now)
        stored = self.notices.get(notice.origin)
        previous = stored.notice if stored else None
        if previous and (notice.sequence, notice.hops) <= (previous.sequence, previous.hops):
            return False, []
        lifetime_ms = min(notice.lifetime_ms, self._lifetime_ms)
        self.notices[notice.origin] = HeldNotice(notice, now + lifetime_ms / 1000, port)
        self._find_deadline()
        is_news = previous is None or previous.body != notice.body
        return is_news, self._forward(notice, port)

    def _forward(self, notice: Notice[NoticeBody], port: int) -> list[Send]:
        """Return the messages that forward a notice which came in at `port`."""
        if not notice.hops:
            return []
        ports = [other for other in self._onward(notice, port) if other != port]
        return [self._send(notice, other, notice.hops - 1) for other in ports]

    def _contradict(self, notice: Notice[NoticeBody], now: float) -> list[Send]:
        """Jump past the number of a notice in our name, and repeat ours if it differs."""
        if notice.sequence <= self._sequence:
            return []
        self._sequence = notice.sequence
        if self._body is None or self._body == notice.body:
            return []
        self._left = self._repeats
        return self._say_again(now)

    def tell(self, port: int, now: float) -> list[Send]:
        """Return all stored notices for the neighbour at `port`, which came up."""
        sends = []
        if self._body is not None and not self._empty(self._body) and port in self._says_at:
            sends.append(self._send(self._own(), port, self._scope - 1))
        for notice, expires_s, input_port in self.notices.values():
            lifetime_ms = int((expires_s - now) * 1000)
            back = port == input_port or notice.origin == self._neighbours[port]
            forwards = notice.hops and not back and port in self._onward(notice, input_port)
            if forwards and lifetime_ms > 0:
                current = notice._replace(lifetime_ms=lifetime_ms)
                sends.append(self._send(current, port, notice.hops - 1))
        return sends

    def tick(self, now: float) -> tuple[bool, list[Send]]:
        """Return True if a notice that was not empty expired, and the repetitions that are due."""
        expired = [origin for origin, entry in self.notices.items() if entry.expires_s <= now]
        bodies = [self.notices.pop(origin).notice.body for origin in expired]
        sends = self._say_again(now) if self._due_s <= now else []
        self._find_deadline()
        return any(not self._empty(body) for body in bodies), sends

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
        onward = notice._replace(sender=self._node, target=self._neighbours[port], hops=hops)
        return Send(port, self._encode(onward))

    def _find_deadline(self) -> None:
        self.deadline = min([self._due_s, *(entry.expires_s for entry in self.notices.values())])
