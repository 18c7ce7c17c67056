"""Mininet's tests that need other means here: iperf by iperf3, shares by control groups."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from mininet.log import output
from mininet.net import Mininet

from weft.testbed.linux import netns
from weft.testbed.mininet.lan_nodes import LimitedHost, processor_shares
from weft.testbed.runs.run import RunRecord
from weft.testbed.traffic.iperf import IperfNode, IperfSpec, between

NO_ROUTE = "ping: connect: "  # followed by an error that Mininet cannot parse
UNITS = {"k": ("Kbits", 1e3), "m": ("Mbits", 1e6), "g": ("Gbits", 1e9)}
SUFFIXES = {"K": 1e3, "M": 1e6, "G": 1e9}


class NetTests:
    """Mix-in before mininet.net.Mininet."""

    hosts: list[Any]

    @property
    def identity(self) -> RunRecord:
        """Return the run of the hosts."""
        raise NotImplementedError

    def judged(self, *, always: bool = True) -> AbstractContextManager[None]:
        """Watch the network during a measurement, and print its fidelity after it.

        Args:
            always: print PASS, too.
        """
        raise NotImplementedError

    @staticmethod
    def _parsePing(pingOutput: str) -> tuple[int, int]:
        """Return packets sent and received; without a route one is sent and lost."""
        if NO_ROUTE in pingOutput:
            return 1, 0
        counts: tuple[int, int] = Mininet._parsePing(pingOutput)
        return counts

    @staticmethod
    def _parsePingFull(pingOutput: str) -> tuple[float, ...]:
        """Return packets sent and received, and round-trip times."""
        if NO_ROUTE in pingOutput:
            return 1, 0, 0, 0, 0, 0
        counts: tuple[float, ...] = Mininet._parsePingFull(pingOutput)
        return counts

    def iperf(
        self,
        hosts: Any = None,
        l4Type: str = "TCP",
        udpBw: str = "10M",
        fmt: str | None = None,
        seconds: int = 5,
        port: int | None = None,
    ) -> list[str]:
        """Run one iperf3 test and return the rates that the server received and the client sent.

        As in Mininet a rate is text such as "9.57 Mbits/sec", and udpBw precedes them for UDP.

        Args:
            hosts: client and server; by default the first and the last host.
            l4Type: TCP or UDP.
            udpBw: rate of UDP, such as 10M.
            fmt: unit k, m or g; by default the largest that fits.
            seconds: duration.
            port: of the server; by default any free one.

        Raises:
            IperfError: iperf3 failed; the message is its own.
        """
        client, server = hosts or (self.hosts[0], self.hosts[-1])
        if l4Type not in ("TCP", "UDP"):
            raise ValueError(f"iperf: l4Type is TCP or UDP, not {l4Type!r}")
        output(f"*** Iperf: testing {l4Type} bandwidth between {client} and {server}\n")
        udp_rate_bps = rate_bps_of(udpBw) if l4Type == "UDP" else None
        with self.judged(), ExitStack() as stack:
            ends = [endpoint(host) for host in (client, server)]
            for end in ends:
                stack.callback(os.close, end.netns)
            spec = IperfSpec(seconds=seconds, udp_rate_bps=udp_rate_bps)
            result = between(ends[0], ends[1], spec, self.identity.id, port=port)
            rates = [rate_text(rate_bps, fmt) for rate_bps in (result.goodput_bps, result.sent_bps)]
            if udp_rate_bps is not None:
                rates.insert(0, udpBw)
            output(f"*** Results: {rates}\n")
        return rates

    def runCpuLimitTest(self, cpu: float, duration: int = 5) -> list[float]:
        """Return the share of all processors (per cent) of each busy host, second by second.

        Raises:
            ValueError: hosts have no shares.
        """
        if not all(isinstance(host, LimitedHost) for host in self.hosts):
            raise ValueError("runCpuLimitTest needs host=CPULimitedHost")
        shares = processor_shares(self.hosts, cpu, duration)
        output(f"*** Results: {shares}\n")
        return shares


def endpoint(host: Any) -> IperfNode:
    """Return a host as an end of iperf3; the caller closes its descriptor.

    Raises:
        ValueError: the host has no address.
    """
    address = host.IP()
    if not address:
        raise ValueError(f"iperf: {host} has no address")
    fd = os.open(netns.NAMES / host.namespace, os.O_RDONLY | os.O_CLOEXEC)
    return IperfNode(host.name, fd, address)


def rate_bps_of(text: str) -> int:
    """Return the bits per second of iperf's 10M; raise ValueError for other text."""
    has_unit = text[-1:].isalpha()
    try:
        scale = SUFFIXES[text[-1].upper()] if has_unit else 1
        return round(float(text[:-1] if has_unit else text) * scale)
    except (KeyError, ValueError):
        raise ValueError(f"iperf: {text!r} is no rate; write it as in 10M") from None


def rate_text(rate_bps: float, fmt: str | None) -> str:
    """Return a rate as iperf writes it, in the unit of `fmt`."""
    if fmt is not None and fmt.lower() not in UNITS:
        raise ValueError(f"iperf: fmt is k, m or g, not {fmt!r}")
    fits = [unit for unit in UNITS.values() if rate_bps >= unit[1]] or [UNITS["k"]]
    name, scale = UNITS[fmt.lower()] if fmt else fits[-1]
    value = rate_bps / scale
    return f"{value:.{max(0, 3 - len(str(int(value))))}f} {name}/sec"
