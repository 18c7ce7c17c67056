"""Ping any number of pairs at once, from one process.

A raw socket keeps the namespace that it was opened in, so this process sends the requests of all
servers.  The kernel stamps the time of each answer.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import quantiles

from weft.testbed.linux import clock, icmp
from weft.testbed.measure.probe_batch import ProbeBatch
from weft.testbed.runs.network_handle import NetworkHandle, routers
from weft.topologies.core.address import dotted


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
