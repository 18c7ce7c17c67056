"""Ping: any number of pairs at once, from one process.

A raw socket keeps the namespace that it was opened in, so all servers' echo requests are sent from
here, and the time of each answer is the kernel's own stamp.  24,180 pairs take two seconds, where a
ping process each would take minutes.
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
    """One pair: echo requests sent and answered, their round-trip times in order of arrival, and
    what else came back, such as "network unreachable, says h3", without repetition."""

    src: int
    dst: int
    sent: int
    received: int
    rtts_us: tuple[float, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class PingTable:
    """What many pairs had; `retries` extra attempts were allowed to each that had no answer at
    all."""

    pings: tuple[Ping, ...]
    retries: int
    seconds: float

    @property
    def lost(self) -> tuple[Ping, ...]:
        """The pairs that had no answer."""
        return tuple(ping for ping in self.pings if not ping.received)

    @property
    def lost_fraction(self) -> float:
        """Requests without an answer among all, 0 .. 1."""
        sent = sum(ping.sent for ping in self.pings)
        return 1 - sum(ping.received for ping in self.pings) / sent if sent else 0.0

    def percentile_us(self, percent: int) -> float | None:
        """The round-trip time that `percent` % (1 .. 99) of the answers did not exceed; None
        without two answers."""
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
    """Ping every (source, destination) of `pairs` `count` times, once in `interval_ms` if the
    network allows it.

    timeout_s: how long to wait for an answer; the whole takes no longer than sending does, and that
        once more for each round of retries.
    retries: how many more times to ask where no answer came: 0 tells a lossy path from a good one,
        more tell only a broken one.
    Raises ValueError for a pair of a node with itself, or with one that has no address.
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
    """Let `node` ping its own address: the time of the protocol stack without links."""
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
    began = clock.monotonic()
    batch = Pinging(net, pairs, timeout_s, size_bytes, retries)
    for turn in range(count):
        for one in batch.tallies:
            batch.fire(one.src, one, began + turn * interval_ms / 1000)
    batch.run()
    pings = tuple(
        Ping(one.src, one.dst, one.sent, len(one.rtts_us), tuple(one.rtts_us), tuple(one.reasons))
        for one in batch.tallies
    )
    return PingTable(pings, retries, clock.monotonic() - began)


class PingTally:
    """A pair, while it is being pinged."""

    def __init__(self, src: int, dst: int, address: str, retries: int) -> None:
        self.src = src
        self.dst = dst
        self.address = address
        self.retries = retries
        self.sent = 0
        self.open = 0
        self.rtts_us: list[float] = []
        self.reasons: dict[str, None] = {}


class Pinging(ProbeBatch[PingTally]):
    """Echo requests, and what comes back."""

    def __init__(
        self,
        net: NetworkHandle,
        pairs: Iterable[tuple[int, int]],
        timeout_s: float,
        size_bytes: int,
        retries: int,
    ) -> None:
        self.tallies = [
            PingTally(src, dst, dotted(net.topology.naming.address(dst)), retries)
            for src, dst in pairs
        ]
        for one in self.tallies:
            if net.topology.is_crossbar(one.src):
                raise ValueError(
                    f"ping: {net.topology.naming.name(one.src)} cannot ping {one.address}"
                )
        super().__init__(
            net,
            {one.src for one in self.tallies},
            (icmp.ECHO_REPLY, icmp.UNREACHABLE, icmp.TIME_EXCEEDED),
            timeout_s,
        )
        self.identifier, self.token = (
            int.from_bytes(os.urandom(2), "big"),
            int.from_bytes(os.urandom(4), "big"),
        )
        self.echo = icmp.Echo(self.identifier, self.token, size_bytes)
        self.routers = routers(net)
        self.name = net.topology.naming.name

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
        self._failed(
            probe, f"{os.strerror(why.errno or 0).lower()}, says {self.name(probe.src)} itself"
        )

    def _failed(self, probe: PingTally, reason: str | None) -> None:
        probe.open -= 1
        if reason:
            probe.reasons[reason] = None
        if probe.open == 0 and not probe.rtts_us and probe.retries:
            probe.retries -= 1
            self.fire(probe.src, probe)
