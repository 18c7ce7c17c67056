"""Which of some pairs of servers cannot reach each other, told as it happens: a ping each turn for
each pair.

It loads the network and this machine little, and so finds less than testbed/measure/outage.py: an
outage is known to the time between two pings, and one that is shorter may not be seen.  One that
lasts is told when LOST pings in a row have no answer, a shorter one when it is over.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from weft.testbed.linux import clock, icmp, netns
from weft.testbed.observe.stream_event import StreamEvent
from weft.testbed.runs.network_handle import NetworkHandle

DATA_BYTES = 8
LOST = 4  # pings in a row without an answer: longer than full queues delay one
MOST_PAIRS = 0x10000


@dataclass
class PingedPair:
    """A pair that is pinged: what was sent, and when an answer last came."""

    src: int
    dst: int
    echo: icmp.Echo
    sent: int = 0
    answered: int = 0  # the last request that was
    answered_s: float = 0.0
    cut_off: bool = False  # and told to be


def spread(servers: int, count: int) -> list[tuple[int, int]]:
    """`count` pairs at most of so many servers, each of another source, with ends far from each
    other by number."""
    count = min(count, servers if servers > 1 else 0)
    sources = [i * servers // count for i in range(count)]
    return [(src, (src + servers // 2 + (servers > 2)) % servers) for src in sources]


class LiveOutages:
    """Pings pairs of servers of `net` until closed.

    fileno: an epoll descriptor, readable when answers wait.
    """

    def __init__(
        self, net: NetworkHandle, pairs: Sequence[tuple[int, int]], *, interval_s: float
    ) -> None:
        if len(pairs) > MOST_PAIRS:
            raise ValueError(f"at most {MOST_PAIRS} pairs can be pinged, not {len(pairs)}")
        self._net = net
        self._interval_s = interval_s
        self._token = int.from_bytes(os.urandom(4), "big")
        self._sockets: dict[int, socket.socket] = {}
        self._poll = select.epoll()
        now = clock.monotonic()
        self._pairs = [
            PingedPair(src, dst, icmp.Echo(number, self._token, DATA_BYTES), answered_s=now)
            for number, (src, dst) in enumerate(pairs)
        ]
        for src in dict.fromkeys(src for src, _ in pairs):
            with netns.inside(net.netns(src)):
                self._sockets[src] = icmp.receiver(icmp.ECHO_REPLY)
            self._poll.register(self._sockets[src].fileno(), select.EPOLLIN)
        self._readers = {made.fileno(): made for made in self._sockets.values()}
        self._next_s = now

    def fileno(self) -> int:
        return self._poll.fileno()

    def turn(self) -> list[StreamEvent]:
        """Take in answers, ping if it is time to; the `outage` events of pairs that were cut off,
        or are so no more."""
        found = self._hear()
        now = clock.monotonic()
        if now >= self._next_s:
            found += self._begun()
            self._next_s = max(self._next_s + self._interval_s, now)
            for pair in self._pairs:
                self._send(pair)
        return found

    def _send(self, pair: PingedPair) -> None:
        pair.sent += 1
        address = self._net.topology.naming.address(pair.dst)
        with suppress(OSError):  # no route: counts as lost
            to = (socket.inet_ntoa(struct.pack(">I", address)), 0)
            self._sockets[pair.src].sendto(pair.echo.request(pair.sent & 0xFFFF), to)

    def _hear(self) -> list[StreamEvent]:
        behind_s = clock.wall() - clock.monotonic()
        found = []
        for fd, _ in self._poll.poll(0):
            while got := icmp.receive(self._readers[fd]):
                packet, ns = got
                answer = icmp.parse(packet)
                if answer is None or answer.token != self._token:
                    continue
                pair = self._pairs[answer.key >> 16]
                number = pair.sent - ((pair.sent - answer.key) & 0xFFFF)
                if number > pair.answered:
                    found += self._answered(pair, number, ns / 1e9 - behind_s)
        return found

    def _answered(self, pair: PingedPair, number: int, at_s: float) -> list[StreamEvent]:
        """An `outage` event if requests before this one had no answer."""
        before, last_s = pair.answered, pair.answered_s
        pair.answered, pair.answered_s, pair.cut_off = number, at_s, False
        if number == before + 1:
            return []
        return [
            self._event(pair, at_s, "over")
            | {"lasted_s": round(at_s - last_s, 6), "lost": number - before - 1}
        ]

    def _begun(self) -> list[StreamEvent]:
        found = []
        for pair in self._pairs:
            if not pair.cut_off and pair.sent - pair.answered >= LOST:
                pair.cut_off = True
                found.append(self._event(pair, pair.answered_s, "begun"))
        return found

    def _event(self, pair: PingedPair, at_s: float, state: str) -> StreamEvent:
        name = self._net.topology.naming.name
        return {
            "event": "outage",
            "at_s": at_s,
            "from": name(pair.src),
            "to": name(pair.dst),
            "state": state,
        }

    def close(self) -> None:
        self._poll.close()
        for made in self._sockets.values():
            made.close()
        self._sockets.clear()
