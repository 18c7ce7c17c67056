"""Ping any number of pairs at once, from one process.

A raw socket keeps the namespace that it was opened in, so this process sends the requests of all
servers.  The kernel stamps the time of each answer.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import quantiles

from weft.testbed.linux import clock, icmp
from weft.testbed.measure.probe_batch import ProbeBatch
from weft.testbed.runs.network_handle import NetworkHandle, routers
from weft.topologies.core.address import dotted


@dataclass(frozen=True)
class Ping:
    """Echo requests of one pair.

    Attributes:
        rtts_us: round-trip times in order of arrival.
        reasons: distinct errors, such as "network unreachable, says h3".
    """

    src: int
    dst: int
    sent: int
    received: int
    rtts_us: tuple[float, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class PingTable:
    """Pings of many pairs; a pair without any answer had up to `retries` more requests."""

    pings: tuple[Ping, ...]
    retries: int
    seconds: float

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
        ValueError: source and destination are one node, or a node has no address.
    """
    pairs = list(pairs)
    for src, dst in pairs:
        if src == dst:
            raise ValueError(
                f"ping: {net.topology.naming.name(src)} cannot ping itself; ping_itself() can"
            )
    return _ping(net, pairs, count, interval_ms, timeout_s, size_bytes, retries)


def ping_itself(
    net: NetworkHandle,
    node: int,
    *,
    count: int = 1,
    interval_ms: float = 10.0,
    timeout_s: float = 1.0,
    size_bytes: int = 56,
) -> PingTable:
    """Ping the own address of `node`: the delay of the protocol stack without links."""
    return _ping(net, [(node, node)], count, interval_ms, timeout_s, size_bytes, 0)


def _ping(
    net: NetworkHandle,
    pairs: Iterable[tuple[int, int]],
    count: int,
    interval_ms: float,
    timeout_s: float,
    size_bytes: int,
    retries: int,
) -> PingTable:
    if count < 1 or timeout_s <= 0 or not 4 <= size_bytes <= 1472 or size_bytes % 2:
        raise ValueError(
            "ping: count from 1, timeout over 0 s, size an even number of bytes from 4 to 1472"
        )
    begin_s = clock.monotonic()
    batch = Pinging(net, pairs, timeout_s, size_bytes, retries)
    for turn in range(count):
        for tally in batch.tallies:
            batch.fire(tally.src, tally, begin_s + turn * interval_ms / 1000)
    batch.run()
    pings = tuple(tally.result() for tally in batch.tallies)
    return PingTable(pings, retries, clock.monotonic() - begin_s)


class PingTally:
    """Counters of a pair while it is pinged."""

    def __init__(self, src: int, dst: int, address: str, retries: int) -> None:
        self.src = src
        self.dst = dst
        self.address = address
        self.retries = retries
        self.sent = 0
        self.open = 0
        self.rtts_us: list[float] = []
        self.reasons: dict[str, None] = {}

    def result(self) -> Ping:
        """Return the counters as a Ping."""
        return Ping(
            src=self.src,
            dst=self.dst,
            sent=self.sent,
            received=len(self.rtts_us),
            rtts_us=tuple(self.rtts_us),
            reasons=tuple(self.reasons),
        )


class Pinging(ProbeBatch[PingTally]):
    """Echo requests and their answers."""

    def __init__(
        self,
        net: NetworkHandle,
        pairs: Iterable[tuple[int, int]],
        timeout_s: float,
        size_bytes: int,
        retries: int,
    ) -> None:
        naming = net.topology.naming
        self.tallies = [
            PingTally(src, dst, dotted(naming.address(dst)), retries) for src, dst in pairs
        ]
        sources = {tally.src for tally in self.tallies}
        for src in sources:
            if net.topology.is_crossbar(src):
                raise ValueError(f"ping: {naming.name(src)} cannot ping: it has no address")
        kinds = (icmp.ECHO_REPLY, icmp.UNREACHABLE, icmp.TIME_EXCEEDED)
        super().__init__(net, sources, kinds, timeout_s)
        self.identifier = int.from_bytes(os.urandom(2), "big")
        self.token = int.from_bytes(os.urandom(4), "big")
        self.echo = icmp.Echo(self.identifier, self.token, size_bytes)
        self.routers = routers(net)
        self.name = naming.name

    def sender(self) -> socket.socket:
        return icmp.sender(socket.IPPROTO_ICMP)

    def send(self, sender: socket.socket, probe: PingTally, sequence: int) -> None:
        sender.sendto(self.echo.request(sequence), (probe.address, 0))
        probe.sent += 1
        probe.open += 1

    def is_mine(self, answer: icmp.IcmpReply) -> bool:
        mine = answer.protocol == socket.IPPROTO_ICMP and answer.key >> 16 == self.identifier
        return mine and answer.token == self.token

    def answered(self, probe: PingTally, answer: icmp.IcmpReply, rtt_us: float) -> None:
        if answer.kind == icmp.ECHO_REPLY:
            probe.open -= 1
            probe.rtts_us.append(rtt_us)
            return
        by = self.name(self.routers[answer.by]) if answer.by in self.routers else dotted(answer.by)
        self._failed(probe, f"{icmp.words(answer)}, says {by}")

    def lost(self, probe: PingTally) -> None:
        self._failed(probe, None)

    def refused(self, probe: PingTally, why: OSError) -> None:
        probe.sent += 1
        probe.open += 1
        reason = os.strerror(why.errno or 0).lower()
        self._failed(probe, f"{reason}, says {self.name(probe.src)} itself")

    def _failed(self, probe: PingTally, reason: str | None) -> None:
        probe.open -= 1
        if reason:
            probe.reasons[reason] = None
        if probe.open == 0 and not probe.rtts_us and probe.retries:
            probe.retries -= 1
            self.fire(probe.src, probe)
