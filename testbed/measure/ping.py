"""Ping any number of pairs at once, from one process.

A raw socket keeps the namespace that it was opened in, so this process sends the requests of all
servers.  The kernel stamps the time of each answer.

Probes are sent as fast as the network takes them, each with a timeout.  At most as many are in
flight as the shortest queue holds, so probes alone never overflow a queue, whatever links their
paths share.
"""

from __future__ import annotations

import os
import select
import socket
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Generic, NamedTuple, TypeVar

from weft.testbed.linux import clock, icmp, netns
from weft.testbed.runs.network_handle import NetworkHandle, routers, smallest_queue
from weft.topologies.core.address import dotted

ProbeKind = TypeVar("ProbeKind")

MOST_IN_FLIGHT = 500  # without a limited queue; more gain nothing
# A probe without an answer counts as in flight for this long, not until its timeout: in a
# partitioned network lost probes would block the others.  Small packets alone have left a queue by
# then (250 of 98 bytes at 20 Mbit/s take 10 ms).
IN_FLIGHT_S = 0.05


class SentProbe(NamedTuple):
    """Identity of a probe in flight: its source, and its number there."""

    source: int
    sequence: int


class ProbeBatch(ABC, Generic[ProbeKind]):
    """Send probes and match answers to them; run() returns when each was answered, lost or refused.

    A subclass defines how to send a probe and which answers are its own; answered(), lost() and
    refused() may each fire() again.
    """

    def __init__(
        self, net: NetworkHandle, sources: Collection[int], kinds: Collection[int], timeout_s: float
    ) -> None:
        """Open the sockets.

        Args:
            net: the network.
            sources: nodes that send.
            kinds: ICMP types of the answers.
            timeout_s: time after which a probe is lost.
        """
        self.timeout_s = timeout_s
        self._most = smallest_queue(net) or MOST_IN_FLIGHT
        self._waiting: deque[tuple[float, int, ProbeKind]] = deque()
        self._sent: dict[SentProbe, tuple[ProbeKind, int]] = {}
        self._ages: deque[tuple[float, SentProbe]] = deque()  # all, in order of sending
        self._recent: deque[tuple[float, SentProbe]] = deque()  # less than IN_FLIGHT_S ago
        self._in_flight: set[SentProbe] = set()
        self._sequence = dict.fromkeys(sources, 0)
        self._sources: dict[int, int] = {}  # by descriptor of the receiver
        self.receivers: dict[int, socket.socket] = {}
        self.senders: dict[int, socket.socket] = {}
        with ExitStack() as stack:
            self._poll = stack.enter_context(select.epoll())
            for source in sources:
                with netns.inside(net.netns(source)):
                    self._open_sockets(source, kinds, stack)
            self._open = stack.pop_all()

    def _open_sockets(self, source: int, kinds: Collection[int], stack: ExitStack) -> None:
        """Open the sockets of a source; the thread is in its namespace."""
        receiver = stack.enter_context(icmp.receiver(*kinds))
        self.receivers[source] = receiver
        self.senders[source] = stack.enter_context(self.sender())
        self._sources[receiver.fileno()] = source
        self._poll.register(receiver, select.EPOLLIN)

    @abstractmethod
    def sender(self) -> socket.socket:
        """Return a socket to send from, opened in the namespace of the thread."""

    @abstractmethod
    def send(self, sender: socket.socket, probe: ProbeKind, sequence: int) -> None:
        """Send `probe` as number `sequence`, 1 .. 65535.

        Raises:
            OSError: the kernel cannot send it.
        """

    @abstractmethod
    def is_mine(self, answer: icmp.IcmpReply) -> bool:
        """Return True for an answer to this batch; the low 16 bits of its key are the sequence."""

    @abstractmethod
    def answered(self, probe: ProbeKind, answer: icmp.IcmpReply, rtt_us: float) -> None:
        """Handle the first answer to `probe`."""

    @abstractmethod
    def lost(self, probe: ProbeKind) -> None:
        """Handle the timeout of `probe`."""

    @abstractmethod
    def refused(self, probe: ProbeKind, why: OSError) -> None:
        """Handle an error of the sender's own kernel."""

    def fire(self, source: int, probe: ProbeKind, due_s: float = 0.0) -> None:
        """Queue `probe` for sending from `source`, not before `due_s` on CLOCK_MONOTONIC."""
        self._waiting.append((due_s, source, probe))

    def run(self) -> None:
        """Send and receive until no probe is open; then close the sockets."""
        with self._open:
            while self._waiting or self._sent:
                now = clock.monotonic()
                self._send_due(now)
                self._receive(self._pause(now))
                self._expire(clock.monotonic())

    def _send_due(self, now: float) -> None:
        while self._waiting and self._waiting[0][0] <= now and len(self._in_flight) < self._most:
            _, source, probe = self._waiting.popleft()
            sequence = self._sequence[source] = self._sequence[source] % 0xFFFF + 1
            sent = SentProbe(source, sequence)
            ns = clock.wall_ns()  # the kernel stamps answers by this clock
            try:
                self.send(self.senders[source], probe, sequence)
            except BlockingIOError:  # the queue of this sender is full
                self._waiting.append((now + 0.001, source, probe))
                return
            except OSError as error:
                self.refused(probe, error)
                continue
            self._sent[sent] = (probe, ns)
            self._in_flight.add(sent)
            self._ages.append((now, sent))
            self._recent.append((now, sent))

    def _pause(self, now: float) -> float:
        """Return the seconds until the next deadline."""
        events = [self._ages[0][0] + self.timeout_s] if self._ages else []
        if self._waiting and len(self._in_flight) < self._most:
            events.append(self._waiting[0][0])
        elif self._waiting and self._recent:
            events.append(self._recent[0][0] + IN_FLIGHT_S)
        return max(0.0, min(events, default=now) - now)

    def _receive(self, pause_s: float) -> None:
        for fd, _ in self._poll.poll(pause_s):
            source = self._sources[fd]
            while datagram := icmp.receive(self.receivers[source]):
                packet, ns = datagram
                answer = icmp.parse(packet)
                if answer is None or not self.is_mine(answer):
                    continue
                key = SentProbe(source, answer.key & 0xFFFF)
                self._in_flight.discard(key)
                if key in self._sent:  # neither a duplicate nor late
                    probe, sent_ns = self._sent.pop(key)
                    self.answered(probe, answer, (ns - sent_ns) / 1000)

    def _expire(self, now: float) -> None:
        while self._recent and self._recent[0][0] + IN_FLIGHT_S <= now:
            self._in_flight.discard(self._recent.popleft()[1])
        while self._ages and (
            self._ages[0][1] not in self._sent or self._ages[0][0] + self.timeout_s <= now
        ):
            _, sent = self._ages.popleft()
            if sent in self._sent:
                probe, _ = self._sent.pop(sent)
                self.lost(probe)


@dataclass
class Ping:
    """Echo requests of one pair.

    Attributes:
        sent: requests.
        open: requests that are neither answered nor lost.
        retries_left: further requests, if none is answered.
        rtts_us: round-trip times in order of arrival.
        reasons: distinct errors, such as "network unreachable, says h3".
    """

    src: int
    dst: int
    sent: int = 0
    open: int = 0
    retries_left: int = 0
    rtts_us: list[float] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    @property
    def received(self) -> int:
        """Return the number of answers."""
        return len(self.rtts_us)


@dataclass(frozen=True)
class PingTable:
    """Pings of many pairs."""

    pings: tuple[Ping, ...]

    @property
    def lost(self) -> tuple[Ping, ...]:
        """Return the pairs without an answer."""
        return tuple(ping for ping in self.pings if not ping.received)

    @property
    def lost_fraction(self) -> float:
        """Return the fraction of requests without an answer, 0 .. 1."""
        sent = sum(ping.sent for ping in self.pings)
        return 1 - sum(ping.received for ping in self.pings) / sent if sent else 0.0

    def percentile_us(self, percent: int) -> float | None:
        """Return the round-trip time of percentile 1 .. 99; None with fewer than two answers."""
        rtts = [rtt for ping in self.pings for rtt in ping.rtts_us]
        return quantiles(rtts, n=100, method="inclusive")[percent - 1] if len(rtts) > 1 else None


def ping(
    net: NetworkHandle,
    pairs: Iterable[tuple[int, int]],
    *,
    count: int = 1,
    interval_ms: float = 10.0,
    timeout_s: float = 1.0,
    size_bytes: int = 56,
    retries: int = 0,
) -> PingTable:
    """Ping each (source, destination) of `pairs` `count` times, every `interval_ms` at most.

    A node that pings itself measures the protocol stack without links.

    Args:
        net: the network.
        pairs: nodes that send, and nodes that answer.
        count: requests to each pair.
        interval_ms: between requests; longer where the network is slower.
        timeout_s: time after which a request is lost.
        size_bytes: data of a request, an even number.
        retries: further requests to a pair without any answer: 0 measures loss, more only detect a
            broken path.

    Raises:
        ValueError: a number is out of range, or a node has no address.
    """
    if count < 1 or timeout_s <= 0 or not 4 <= size_bytes <= 1472 or size_bytes % 2:
        raise ValueError(
            "ping: count from 1, timeout over 0 s, size an even number of bytes from 4 to 1472"
        )
    begin_s = clock.monotonic()
    pings = tuple(Ping(src, dst, retries_left=retries) for src, dst in pairs)
    batch = Pinging(net, pings, timeout_s, size_bytes)
    for turn in range(count):
        for probe in pings:
            batch.fire(probe.src, probe, begin_s + turn * interval_ms / 1000)
    batch.run()
    return PingTable(pings)


class Pinging(ProbeBatch[Ping]):
    """Echo requests and their answers."""

    def __init__(
        self, net: NetworkHandle, pings: Iterable[Ping], timeout_s: float, size_bytes: int
    ) -> None:
        naming = net.topology.naming
        sources = {ping.src for ping in pings}
        for src in sources:
            if net.topology.is_crossbar(src):
                raise ValueError(f"ping: {naming.name(src)} cannot ping: it has no address")
        self.addresses = {ping.dst: dotted(naming.address(ping.dst)) for ping in pings}
        kinds = (icmp.ECHO_REPLY, icmp.UNREACHABLE, icmp.TIME_EXCEEDED)
        super().__init__(net, sources, kinds, timeout_s)
        self.identifier = int.from_bytes(os.urandom(2), "big")
        self.token = int.from_bytes(os.urandom(4), "big")
        self.echo = icmp.Echo(self.identifier, self.token, size_bytes)
        self.routers = routers(net)
        self.name = naming.name

    def sender(self) -> socket.socket:
        return icmp.sender(socket.IPPROTO_ICMP)

    def send(self, sender: socket.socket, probe: Ping, sequence: int) -> None:
        sender.sendto(self.echo.request(sequence), (self.addresses[probe.dst], 0))
        probe.sent += 1
        probe.open += 1

    def is_mine(self, answer: icmp.IcmpReply) -> bool:
        mine = answer.protocol == socket.IPPROTO_ICMP and answer.key >> 16 == self.identifier
        return mine and answer.token == self.token

    def answered(self, probe: Ping, answer: icmp.IcmpReply, rtt_us: float) -> None:
        if answer.kind == icmp.ECHO_REPLY:
            probe.open -= 1
            probe.rtts_us.append(rtt_us)
            return
        by = self.name(self.routers[answer.by]) if answer.by in self.routers else dotted(answer.by)
        self._failed(probe, f"{icmp.words(answer)}, says {by}")

    def lost(self, probe: Ping) -> None:
        self._failed(probe, None)

    def refused(self, probe: Ping, why: OSError) -> None:
        probe.sent += 1
        probe.open += 1
        reason = os.strerror(why.errno or 0).lower()
        self._failed(probe, f"{reason}, says {self.name(probe.src)} itself")

    def _failed(self, probe: Ping, reason: str | None) -> None:
        probe.open -= 1
        if reason and reason not in probe.reasons:
            probe.reasons.append(reason)
        if probe.open == 0 and not probe.rtts_us and probe.retries_left:
            probe.retries_left -= 1
            self.fire(probe.src, probe)
