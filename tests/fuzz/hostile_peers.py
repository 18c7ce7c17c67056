"""Hostile messages to agents: python -m tests.fuzz.hostile_peers --messages 1000000.

Two agents greet each other in simulated time.  Between their greetings an attacker says what it has
overheard, changed.  A stranger changes, cuts and repeats whole messages; then every greeting must
still count.  A holder of the key changes what they say, and seals it; then no message may raise,
and when the attacker rests, both must be heard again before their leases end.
"""

from __future__ import annotations

import argparse
import hmac
import json
import sys
import time
from collections.abc import Callable
from random import Random
from typing import Any

from weft.testbed.cluster.controller import BEAT_S
from weft.testbed.cluster.cut_links import HELLO_S, SEAL_BYTES, PeerChannel
from weft.testbed.cluster.leases import LATE_S, Leases

KEY = b"k" * 32
LENGTH = 1522
HELLOS_PER_BEAT = round(BEAT_S / HELLO_S)
MESSAGES_PER_HELLO = 20
ATTACK_HELLOS, REST_HELLOS = 40, round(LATE_S / HELLO_S)
EDGES = (-1, 0, 1, 2, 3, 5, 7, 255, 2**31, 2**32, 2**40, 2**63, 2**64 - 1, 2**64, 10**400)
TEXTS = ("", "near", "far", "third", "1e400", "\x00", "\ud800", "[" * 1400, "9" * 1400)
OTHERS = (None, True, False, 0.5, 1e308, float("inf"), float("nan"), [], {}, [[]], {"near": 1})


class Attack:
    """Two agents, near and far, and what is said to near.

    failures: what should not have been, a line each.
    """

    def __init__(self, draw: Random, *, has_key: bool) -> None:
        self.failures: list[str] = []
        self.messages = 0
        self._draw, self._has_key = draw, has_key
        self._near = PeerChannel("near", {3: "far", 5: "far", 7: "third"}, KEY, LENGTH)
        self._far = PeerChannel("far", {3: "near", 5: "near"}, KEY, LENGTH)
        self._leases = Leases(0.0, HELLO_S)
        self._hellos = 0
        self._kept: list[bytes] = []

    def run(self, messages: int) -> None:
        """Attack and rest in turn until so many have been said; stop at the first failure."""
        while self.messages < messages and not self.failures:
            for _ in range(ATTACK_HELLOS):
                self._greet()
                for _ in range(MESSAGES_PER_HELLO):
                    self._say(self._hostile())
            for _ in range(REST_HELLOS):
                self._greet()
            if self._leases.silent(2 * HELLO_S):
                self.failures.append("far is not heard again")

    def _greet(self) -> None:
        """Let both say what they do at their next hello."""
        self._hellos += 1
        now_s = self._hellos * HELLO_S
        if self._hellos % HELLOS_PER_BEAT == 0:
            # one of the two has it a hello before the other
            ahead = self._draw.choice((self._near, self._far))
            ahead.beat += 1
        elif self._hellos % HELLOS_PER_BEAT == 1:
            self._near.beat = self._far.beat = max(self._near.beat, self._far.beat)
        self._leases.turn(now_s)
        greeting = self._far.seal("near", self._draw.sample((3, 5), self._draw.randrange(3)))
        counts = self._near.open(greeting) is not None
        self._kept = [*self._kept[-99:], greeting, self._near.seal("far", [])]
        if counts:
            self._leases.renew("far")
        elif not self._has_key:
            self.failures.append(f"a stranger has far's greeting dropped: {self._near.dropped}")

    def _say(self, message: bytes) -> None:
        self.messages += 1
        try:
            news = self._near.open(message)
        except Exception as error:
            self.failures.append(f"{message[SEAL_BYTES:].strip()!r}: {type(error).__name__}")
            return
        if news and not (self._has_key and news[1] <= self._near.links(news[0])):
            self.failures.append(f"{message[SEAL_BYTES:].strip()!r} counts: {news}")

    def _hostile(self) -> bytes:
        message = self._draw.choice(self._kept)
        if not self._has_key:
            return self._changed(message) if self._draw.random() < 0.8 else message
        body = message[SEAL_BYTES:]
        if self._draw.random() < 0.3:
            body = self._changed(body)
        else:
            words = self._draw.choice((self._changed_words, self._any))(json.loads(body))
            body = json.dumps(words).encode(errors="surrogatepass").ljust(len(body))
        return hmac.digest(KEY, body, "sha256") + body

    def _changed(self, data: bytes) -> bytes:
        """Return `data` with bits flipped, cut off, or with bytes of another text."""
        draw, changed = self._draw, bytearray(data)
        for _ in range(draw.choice((1, 1, 2, 4))):
            # most of a message is padding
            place = draw.randrange(min(len(changed), 80)) if changed else 0
            kinds: list[Callable[[], None]] = [
                lambda place=place: changed.__setitem__(place, changed[place] ^ 1),
                lambda place=place: changed.__delitem__(slice(place, None)),
                lambda place=place: changed.__setitem__(
                    slice(place, place + 3), str(draw.choice(EDGES)).encode()
                ),
            ]
            if changed:
                draw.choice(kinds)()
        return bytes(changed)

    def _changed_words(self, words: list[Any]) -> list[Any]:
        """Return words with some in place of others, or with more or fewer of them."""
        for _ in range(self._draw.choice((1, 1, 2, 3))):
            place = self._draw.randrange(len(words) + 1)
            words[place : place + self._draw.choice((0, 1, 1, 1))] = [self._any(words)]
            if self._draw.random() < 0.5 and len(words) > 5:
                del words[place]
        return words

    def _any(self, words: list[Any]) -> Any:
        """Return a value, some near those that count."""
        near = (self._near.beat, self._near.beat + 1, self._near.beat + 2)
        value = self._draw.choice((*EDGES, *near, *TEXTS, *OTHERS, *words))
        return [value] * self._draw.randrange(4) if self._draw.random() < 0.3 else value


def main() -> None:
    """Attack with the key and without; exit status 1 if an agent withstands less than it should."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="in all")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    failures = []
    for has_key in (False, True):
        began_s = time.monotonic()
        attack = Attack(Random(f"{options.seed} {has_key}"), has_key=has_key)
        attack.run(options.messages // 2)
        who = "a holder of the key" if has_key else "a stranger"
        took_s = time.monotonic() - began_s
        dropped = dict(attack._near.dropped)
        print(f"{who}: {attack.messages} messages in {took_s:.0f} s, dropped {dropped}")
        failures += attack.failures
    print("\n".join(failures))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
