"""Messages between two agents about the links that are cut between their machines.

    seal, 32 bytes | [sender, receiver, beat, number, down] in JSON, padded with spaces

seal: HMAC-SHA256 of the rest, by the run's key.
beat: the count of the last beat that the sender had from the controller.
number: larger than that of the sender's last message.
down: the links whose end at the sender is down.

All messages are of one length.  A message counts if its beat and number exceed those of the last
one.  The controller tells beats over a connection that the key does not open, and every agent at
about the same time, so that one far ahead is refused.  Whatever number a holder of the key invents,
messages of the true sender count again AHEAD + 1 beats later.

All else is dropped and counted; no message raises.
"""

from __future__ import annotations

import hmac
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from weft.testbed.node_daemon.sealed_channel import FORGED, FUTURE, REPLAYED, STRANGE

SEAL_BYTES = 32
AHEAD = 2  # beats: one agent may have the next beat already, another still miss one
MALFORMED = "malformed"


class Words(NamedTuple):
    """Content of a message, without its seal."""

    sender: str
    receiver: str
    beat: int
    number: int
    down: list[int]


class PeerChannel:
    """The messages of one agent.

    dropped: messages, by reason.
    beat: the count of the last beat.
    """

    def __init__(self, machine: str, cut: Mapping[int, str], key: bytes, length: int) -> None:
        """Begin with no message.

        Args:
            machine: this one.
            cut: the machine of the far end of each cut link, by link.
            key: of the run.
            length: of all messages, in bytes.
        """
        self._machine, self._key, self._length = machine, key, length
        self._links: dict[str, set[int]] = defaultdict(set)
        for link, peer in cut.items():
            self._links[peer].add(link)
        self._number = 0
        self._last = dict.fromkeys(self._links, (0, 0))
        self.beat = 0
        self.dropped: Counter[str] = Counter()

    def links(self, peer: str) -> AbstractSet[int]:
        """Return the links that are cut between this machine and `peer`."""
        return self._links[peer]

    def seal(self, peer: str, down: Iterable[int]) -> bytes:
        """Return the next message to `peer`."""
        self._number += 1
        words = Words(self._machine, peer, self.beat, self._number, sorted(down))
        body = json.dumps(words).encode().ljust(self._length - SEAL_BYTES)
        return self._seal(body) + body

    def open(self, message: bytes) -> tuple[str, set[int]] | None:
        """Return the sender and its links that are down; None if the message does not count."""
        body = message[SEAL_BYTES:]
        if not hmac.compare_digest(message[:SEAL_BYTES], self._seal(body)):
            self.dropped[FORGED] += 1
            return None
        words = _words_from(body)
        reason = self._objection(words) if words else MALFORMED
        if reason or not words:
            self.dropped[reason] += 1
            return None
        self._last[words.sender] = words.beat, words.number
        return words.sender, set(words.down)

    def _seal(self, body: bytes) -> bytes:
        return hmac.digest(self._key, body, "sha256")

    def _objection(self, words: Words) -> str:
        """Return the reason why a message does not count; empty if it does."""
        if words.receiver != self._machine or words.sender not in self._last:
            return STRANGE
        if not self.links(words.sender) >= set(words.down):
            return MALFORMED
        if words.beat > self.beat + AHEAD:
            return FUTURE
        if (words.beat, words.number) <= self._last[words.sender]:
            return REPLAYED
        return ""


def _words_from(body: bytes) -> Words | None:
    """Return the words of a message; None if it is malformed."""
    try:
        words = Words(*json.loads(body))
        names = [words.sender, words.receiver]
        numbers = [words.beat, words.number, *words.down]
    except (ValueError, TypeError, RecursionError):
        return None
    # True and 1.0 are no numbers of a message
    are_whole = all(type(number) is int and number >= 0 for number in numbers)
    return words if are_whole and all(isinstance(name, str) for name in names) else None
