"""Outages between some pairs of servers as they happen, detected by regular pings.

The pings load network and machine little, so they detect less than testbed/measure/outage.py: times
are known to one ping interval, and shorter outages may be missed.  A lasting outage is reported
after LOST unanswered pings in a row, a shorter one at its end.
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
    """A pinged pair: requests sent, and the last answer."""

    src: int
    dst: int
    echo: icmp.Echo
    sent: int = 0
    answered: int = 0  # number of the last answered request
    answered_s: float = 0.0
    cut_off: bool = False  # and reported


def spread(servers: int, count: int) -> list[tuple[int, int]]:
    """Return at most `count` pairs of servers: distinct sources, ends far apart by number."""
    count = min(count, servers if servers > 1 else 0)
    sources = [i * servers // count for i in range(count)]
    return [(src, (src + servers // 2 + (servers > 2)) % servers) for src in sources]


class LiveOutages:
    """Ping pairs of servers of `net` until closed.

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
        self._readers = {opened.fileno(): opened for opened in self._sockets.values()}
        self._next_s = now

    def fileno(self) -> int:
        return self._poll.fileno()

    def turn(self) -> list[StreamEvent]:
        """Read answers, ping if it is time, and return the `outage` events."""
        events = self._hear()
        now = clock.monotonic()
        if now >= self._next_s:
            events += self._begun()
            self._next_s = max(self._next_s + self._interval_s, now)
            for pair in self._pairs:
                self._send(pair)
        return events

    def _send(self, pair: PingedPair) -> None:
        pair.sent += 1
        address = self._net.topology.naming.address(pair.dst)
        with suppress(OSError):  # no route: counts as lost
            to = (socket.inet_ntoa(struct.pack(">I", address)), 0)
            self._sockets[pair.src].sendto(pair.echo.request(pair.sent & 0xFFFF), to)

    def _hear(self) -> list[StreamEvent]:
        wall_minus_monotonic_s = clock.wall() - clock.monotonic()
        events = []
        for fd, _ in self._poll.poll(0):
            while message := icmp.receive(self._readers[fd]):
                packet, ns = message
                answer = icmp.parse(packet)
                if answer is None or answer.token != self._token:
                    continue
                pair = self._pairs[answer.key >> 16]
                number = pair.sent - ((pair.sent - answer.key) & 0xFFFF)
                if number > pair.answered:
                    at_s = ns / 1e9 - wall_minus_monotonic_s
                    events += self._answered(pair, number, at_s)
        return events

    def _answered(self, pair: PingedPair, number: int, at_s: float) -> list[StreamEvent]:
        """Return an `outage` event if earlier requests had no answer."""
        lost = number - pair.answered - 1
        lasted_s = round(at_s - pair.answered_s, 6)
        pair.answered = number
        pair.answered_s = at_s
        pair.cut_off = False
        if not lost:
            return []
        return [self._event(pair, at_s, "over") | {"lasted_s": lasted_s, "lost": lost}]

    def _begun(self) -> list[StreamEvent]:
        events = []
        for pair in self._pairs:
            if not pair.cut_off and pair.sent - pair.answered >= LOST:
                pair.cut_off = True
                events.append(self._event(pair, pair.answered_s, "begun"))
        return events

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
        for opened in self._sockets.values():
            opened.close()
        self._sockets.clear()
