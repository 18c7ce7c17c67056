"""What leaves a port is sealed, and of what arrives only what a neighbour sealed for this link, and anew, is read.

    payload | number, 8 bytes | sender, 4 | cookie, 4 | tag, 12

tag: keyed BLAKE2s (RFC 7693) of all before it.  The key is the run's; the link is mixed in, so that what was said on
    one link is nothing on another.
number: one more in each message of this sender at this port, across all its daemons (sequence_file.py).  As in IPsec
    (RFC 4303, 3.4.3) a window of WINDOW numbers below the largest one lets messages overtake each other, and each
    number is taken once.  It has 64 bits and does not wrap.
sender: one of the nodes that are at this port; its own messages, sent back to it, are not among them.
cookie: a function of key and link.  It proves nothing to who can read the link, but a socket's filter can compare it,
    and so what strangers send who cannot read the link is dropped before it takes a socket's room.

What does not verify is dropped without an answer, and counted.  Of what does, a token bucket for each neighbour lets
through MESSAGES_PER_S, before anything is decoded: a neighbour that has gone mad shall not keep a daemon from others.

Everybody in the run has the same key.  It keeps out who is not in the run; who has taken over a node of it is in.
"""

from __future__ import annotations

import struct
from _blake2 import blake2s  # what hashlib.blake2s is; hashlib itself brings OpenSSL, 3 MB that no daemon needs
from _operator import _compare_digest as same  # likewise hmac.compare_digest
from collections import Counter
from collections.abc import Collection, Sequence
from math import inf
from typing import Protocol

from weft.daemons.core import wire
from weft.testbed.authentication.sequence_file import Row

COOKIE_BYTES, TAG_BYTES = 4, 12
END = struct.Struct(f">QI{COOKIE_BYTES}s")  # number, sender, cookie
END_BYTES = END.size
OVERHEAD_BYTES = END_BYTES + TAG_BYTES
WINDOW = 256
MASK = (1 << WINDOW) - 1
NUMBER_BYTES = 8
MESSAGES_PER_S, MESSAGES_AT_ONCE = 2000, 2000  # of one neighbour; more than any scheme's have been seen to say
FORGED, REPLAYED, STRANGE, TOO_MANY = "forged", "replayed", "of no neighbour", "too many"  # why messages are dropped


class Channel(Protocol):
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
        """Use these from now on, the first one to seal; as many as none before if and only if there were none."""


class Allowance:
    """Messages that one neighbour may still have handled: a token bucket, filled when it is found empty."""

    __slots__ = ("filled_s", "left")

    def __init__(self) -> None:
        self.left, self.filled_s = 0, -inf

    def refill(self, now: float) -> bool:
        """Whether there is one more at `now`, which is taken; called when `left` has fallen below 0."""
        earned = min((now - self.filled_s) * MESSAGES_PER_S, MESSAGES_AT_ONCE)
        if earned < 1:
            self.left = 0
            return False
        self.left, self.filled_s = int(earned) - 1, now
        return True


class Sender(Allowance):
    """A neighbour whose messages are numbered."""

    __slots__ = ("at", "largest", "missing")

    def __init__(self, at: int, largest: int) -> None:
        super().__init__()
        self.at = at  # where `largest` is kept
        self.largest = largest  # number heard
        self.missing = 0  # bit d: number largest - d has not been heard, and may be

    def takes(self, ahead: int) -> bool:
        """Whether the number largest + `ahead` is new; it is not from now on."""
        if ahead <= 0:
            bit = 1 << min(-ahead, WINDOW)
            if not self.missing & bit:
                return False
            self.missing ^= bit
            return True
        between = min(ahead, WINDOW)
        self.missing = (self.missing << between | (1 << between) - 2) & MASK
        self.largest += ahead
        return True


class Sealed:
    """A port whose messages are sealed.

    link: a number that both its ends have for it, and that no other link of the run has.
    row: of the node.
    """

    __slots__ = (
        "_end", "_hash", "_link", "_node", "_others", "_senders", "_sent_at", "_words", "cookies", "dropped",
    )  # fmt: skip

    def __init__(self, node: int, port: int, link: int, keys: Sequence[bytes], row: Row) -> None:
        self.dropped: Counter[str] = Counter()
        self._node, self._link = node, link.to_bytes(8, "big")
        self._words, self._sent_at, heard_at = row.at(port)
        self._senders = {near: Sender(at, self._words[at]) for near, at in heard_at.items()}
        self.set_keys(keys)

    def set_keys(self, keys: Sequence[bytes]) -> None:
        hashes = [blake2s(key=key, person=self._link, digest_size=TAG_BYTES) for key in keys]
        self._hash, *self._others = hashes
        self.cookies: Sequence[bytes] = tuple(
            blake2s(b"cookie", key=key, person=self._link, digest_size=4).digest() for key in keys
        )
        self._end = END.pack(0, self._node, self.cookies[0])[NUMBER_BYTES:]

    def seal(self, payload: bytes) -> bytes:
        at = self._sent_at
        self._words[at] = number = self._words[at] + 1
        body = payload + number.to_bytes(NUMBER_BYTES, "big") + self._end
        tag = self._hash.copy()
        tag.update(body)
        return body + tag.digest()

    def open(self, frame: bytes, now: float) -> bytes | None:
        body = frame[:-TAG_BYTES]
        found = self._hash.copy()
        found.update(body)
        if not same(found.digest(), frame[-TAG_BYTES:]) and not self._verifies(frame):
            self.dropped[FORGED] += 1
            return None
        number, near, _ = END.unpack_from(body, len(body) - END_BYTES)
        try:
            sender = self._senders[near]
        except KeyError:
            self.dropped[STRANGE] += 1
            return None
        ahead = number - sender.largest
        if ahead == 1 and not sender.missing:
            sender.largest = number
        elif not sender.takes(ahead):
            self.dropped[REPLAYED] += 1
            return None
        self._words[sender.at] = sender.largest
        sender.left -= 1
        if sender.left < 0 and not sender.refill(now):
            self.dropped[TOO_MANY] += 1
            return None
        return body[:-END_BYTES]

    def _verifies(self, frame: bytes) -> bool:
        """Whether it was sealed by a key other than the one that seals here."""
        for keyed in self._others:
            found = keyed.copy()
            found.update(frame[:-TAG_BYTES])
            if same(found.digest(), frame[-TAG_BYTES:]):
                return True
        return False


class Bare:
    """A port of an experiment whose messages are not sealed; whoever is there may say anything in the name of one of
    the nodes that are there.

    neighbours: those, for as many of whose messages there is room.  Whether a message is of one of them is looked up
        here, where daemons/core/wire.py has its sender, for schemes that do not look themselves.
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
