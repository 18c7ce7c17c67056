"""Seal what leaves a port, and accept only what a neighbour sealed for this link, once.

    payload | number, 8 bytes | sender, 4 | cookie, 4 | tag, 12

tag: keyed BLAKE2s (RFC 7693) of all before it.  The key is the run's; the link is mixed in, so that
    a message of one link verifies on no other.
number: the sender's monotonic clock in nanoseconds, or its last number + 1 if that is larger.  All
    daemons of a run share that clock.  A number beyond the hearer's own clock is refused, so no
    message can use up the numbers to come: the largest number heard outlives daemons
    (sequence_file.py) and never leads the clock by more than AHEAD_NS.
    A window of the last WINDOW messages lets messages overtake each other; each number is accepted
    once.
sender: one of the nodes that are at this port; its own messages, sent back to it, are not among
    them.
cookie: a function of key and link.  It proves nothing to a process that can read the link, but a
    socket's filter can compare it and drop a stranger's message before it takes the socket's room.

A message that does not verify is dropped without an answer, and counted.  A token bucket for each
neighbour passes MESSAGES_PER_S of the others before they are decoded: a faulty neighbour must not
keep a daemon from the rest.

All daemons of a run have the same key.  It keeps out processes that are not in the run, not a node
taken over.
"""

from __future__ import annotations

import struct

# what hashlib.blake2s is; hashlib itself brings OpenSSL, 3 MB that no daemon needs
from _blake2 import blake2s
from _operator import _compare_digest as same  # likewise hmac.compare_digest
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Sequence
from math import inf
from typing import Protocol

from weft.daemons.core import wire
from weft.testbed.linux import clock
from weft.testbed.node_daemon.sequence_file import SequenceRow

COOKIE_BYTES, TAG_BYTES = 4, 12
END = struct.Struct(f">QI{COOKIE_BYTES}s")  # number, sender, cookie
END_BYTES = END.size
OVERHEAD_BYTES = END_BYTES + TAG_BYTES
WINDOW = 256  # messages
AHEAD_NS = 1_000_000  # messages sealed at one instant of a virtual clock lead it by 1 ns each
NUMBER_BYTES = 8
# of one neighbour; more than any scheme's have been seen to say
MESSAGES_PER_S, MESSAGES_AT_ONCE = 2000, 2000
FORGED, REPLAYED, FUTURE = "forged", "replayed", "from the future"  # why messages are dropped
STRANGE, TOO_MANY = "of no neighbour", "too many"


class PortChannel(Protocol):
    """One port of a node.

    dropped: messages that were, by why.
    cookies: those that messages may carry, none if there are no seals.
    """

    dropped: Counter[str]
    cookies: Sequence[bytes]

    def seal(self, payload: bytes) -> bytes:
        """What to send, for `payload` to be believed."""

    def open(self, frame: bytes, now: float) -> bytes | None:
        """The payload of what was heard at `now`, None if it is to be dropped."""

    def set_keys(self, keys: Sequence[bytes]) -> None:
        """Use these from now on, the first one to seal; as many as none before if and only if there
        were none."""


class Allowance:
    """Messages that one neighbour may still have handled: a token bucket, filled when it is found
    empty."""

    __slots__ = ("filled_s", "left")

    def __init__(self) -> None:
        self.left, self.filled_s = 0, -inf

    def refill(self, now: float) -> bool:
        """Whether there is one more at `now`, which is taken; called when `left` has fallen below
        0."""
        earned = min((now - self.filled_s) * MESSAGES_PER_S, MESSAGES_AT_ONCE)
        if earned < 1:
            self.left = 0
            return False
        self.left, self.filled_s = int(earned) - 1, now
        return True


class Sender(Allowance):
    """The numbers accepted from one neighbour.

    recent: the largest of them in ascending order, at most WINDOW and at least one.
    floor: numbers up to this one are refused.
    """

    __slots__ = ("floor", "index", "recent")

    def __init__(self, index: int, largest: int) -> None:
        """Refuse numbers up to `largest`, which word `index` of the node's row keeps."""
        super().__init__()
        self.index = index
        self.floor = largest
        self.recent = [largest]

    def accept(self, number: int) -> bool:
        """Return True if `number` is new, and remember it."""
        recent = self.recent
        if number > recent[-1]:
            recent.append(number)
        else:
            place = bisect_left(recent, number)
            if number <= self.floor or recent[place] == number:
                return False
            recent.insert(place, number)
        if len(recent) > WINDOW:
            self.floor = recent.pop(0)
        return True


class Sealed:
    """A port whose messages are sealed.

    link: a number that both its ends have for it, and that no other link of the run has.
    row: of the node.
    """

    __slots__ = (
        "_end",
        "_hash",
        "_link",
        "_node",
        "_others",
        "_senders",
        "_sent_at",
        "_words",
        "cookies",
        "dropped",
    )

    def __init__(
        self, node: int, port: int, link: int, keys: Sequence[bytes], row: SequenceRow
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self._node, self._link = node, link.to_bytes(8, "big")
        self._words, self._sent_at, heard_at = row.at(port)
        self._senders = {
            near: Sender(index, self._words[index]) for near, index in heard_at.items()
        }
        self.set_keys(keys)

    def set_keys(self, keys: Sequence[bytes]) -> None:
        hashes = [blake2s(key=key, person=self._link, digest_size=TAG_BYTES) for key in keys]
        self._hash, *self._others = hashes
        self.cookies: Sequence[bytes] = tuple(
            blake2s(b"cookie", key=key, person=self._link, digest_size=4).digest() for key in keys
        )
        self._end = END.pack(0, self._node, self.cookies[0])[NUMBER_BYTES:]

    def seal(self, payload: bytes) -> bytes:
        words, index, number = self._words, self._sent_at, clock.monotonic_ns()
        if number <= words[index]:
            number = words[index] + 1
        words[index] = number
        body = payload + number.to_bytes(NUMBER_BYTES, "big") + self._end
        tag = self._hash.copy()
        tag.update(body)
        return body + tag.digest()

    def open(self, frame: bytes, now: float) -> bytes | None:
        body = frame[:-TAG_BYTES]
        tag = self._hash.copy()
        tag.update(body)
        if not same(tag.digest(), frame[-TAG_BYTES:]) and not self._verifies(frame):
            self.dropped[FORGED] += 1
            return None
        number, near, _ = END.unpack_from(body, len(body) - END_BYTES)
        try:
            sender = self._senders[near]
        except KeyError:
            self.dropped[STRANGE] += 1
            return None
        if number > clock.monotonic_ns() + AHEAD_NS:
            self.dropped[FUTURE] += 1
            return None
        if not sender.accept(number):
            self.dropped[REPLAYED] += 1
            return None
        self._words[sender.index] = sender.recent[-1]
        sender.left -= 1
        if sender.left < 0 and not sender.refill(now):
            self.dropped[TOO_MANY] += 1
            return None
        return body[:-END_BYTES]

    def _verifies(self, frame: bytes) -> bool:
        """Return True if a key other than the one that seals here sealed `frame`."""
        for keyed in self._others:
            tag = keyed.copy()
            tag.update(frame[:-TAG_BYTES])
            if same(tag.digest(), frame[-TAG_BYTES:]):
                return True
        return False


class Bare:
    """A port of an experiment whose messages are not sealed; whoever is there may say anything in
    the name of one of the nodes that are there.

    neighbours: those, for as many of whose messages there is room.  Whether a message is of one of
        them is looked up here, where daemons/core/wire.py has its sender, for schemes that do not
        look themselves.
    """

    cookies: Sequence[bytes] = ()

    def __init__(self, neighbours: Collection[int]) -> None:
        self.dropped: Counter[str] = Counter()
        self._names = {node.to_bytes(4, "big") for node in neighbours}
        self._allowances = [Allowance() for _ in range(max(1, len(neighbours)))]

    def set_keys(self, keys: Sequence[bytes]) -> None:
        """There are none."""

    def seal(self, payload: bytes) -> bytes:
        return payload

    def open(self, frame: bytes, now: float) -> bytes | None:
        if frame[wire.SENDER] not in self._names and wire.is_ours(frame):
            self.dropped[STRANGE] += 1
            return None
        for allowance in self._allowances:
            allowance.left -= 1
            if allowance.left >= 0 or allowance.refill(now):
                return frame
        self.dropped[TOO_MANY] += 1
        return None
