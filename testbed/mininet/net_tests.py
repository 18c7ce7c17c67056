"""Tests that Mininet has and that need other means here: iperf by iperf3, shares of the processor
by our own groups."""

from __future__ import annotations

import os
from typing import Any

from mininet.log import output
from mininet.net import Mininet

from weft.testbed.linux import netns
from weft.testbed.mininet.cpu_share import LimitedHost, measure
from weft.testbed.runs.run import RunRecord
from weft.testbed.traffic.iperf import IperfNode, IperfSpec, rates

NO_ROUTE = "ping: connect: "  # and why, in words that Mininet does not know
UNITS = {"k": ("Kbits", 1e3), "m": ("Mbits", 1e6), "g": ("Gbits", 1e9)}
SUFFIXES = {"K": 1e3, "M": 1e6, "G": 1e9}


class NetTests:
    """To be inherited before mininet.net.Mininet."""

    hosts: list[Any]

    @property
    def identity(self) -> RunRecord:
        """The run that the hosts belong to."""
        raise NotImplementedError

    @staticmethod
    def _parsePing(pingOutput: str) -> tuple[int, int]:
        """Packets sent and received; a node without a route sends one that nobody gets, whatever
        its error."""
        if NO_ROUTE in pingOutput:
            return 1, 0
        found: tuple[int, int] = Mininet._parsePing(pingOutput)
        return found

    @staticmethod
    def _parsePingFull(pingOutput: str) -> tuple[float, ...]:
        """The same, and round trip times."""
        if NO_ROUTE in pingOutput:
            return 1, 0, 0, 0, 0, 0
        found: tuple[float, ...] = Mininet._parsePingFull(pingOutput)
        return found

    def iperf(
        self,
        hosts: Any = None,
        l4Type: str = "TCP",
        udpBw: str = "10M",
        fmt: str | None = None,
        seconds: int = 5,
        port: int | None = None,
    ) -> list[str]:
        """What a server received and a client sent in one iperf3 test between two hosts, the first
        and the last if nothing is said: as in Mininet, two rates such as "9.57 Mbits/sec", before
        them udpBw where l4Type is UDP.

        fmt: k, m or g for the unit; by default what fits.  port: of the server; by default any that
            is free.
        Raises IperfError with iperf3's words if it fails; nobody's processes are ended but the
        test's.
        """
        client, server = hosts or (self.hosts[0], self.hosts[-1])
        if l4Type not in ("TCP", "UDP"):
            raise ValueError(f"iperf: l4Type is TCP or UDP, not {l4Type!r}")
        output(f"*** Iperf: testing {l4Type} bandwidth between {client} and {server}\n")
        udp_rate_bps = bits(udpBw) if l4Type == "UDP" else None
        ends = [endpoint(host) for host in (client, server)]
        try:
            spec = IperfSpec(seconds=seconds, udp_rate_bps=udp_rate_bps)
            found = rates(ends[0], ends[1], spec, self.identity.id, port=port)
        finally:
            for end in ends:
                os.close(end.netns)
        result = [written(rate, fmt) for rate in found]
        if udp_rate_bps is not None:
            result.insert(0, udpBw)
        output(f"*** Results: {result}\n")
        return result

    def runCpuLimitTest(self, cpu: float, duration: int = 5) -> list[float]:
        """The share of all processors, in per cent, that each host has in each of `duration`
        seconds while it computes without end.  ValueError unless hosts have shares."""
        if not all(isinstance(host, LimitedHost) for host in self.hosts):
            raise ValueError("runCpuLimitTest needs host=CPULimitedHost")
        found = measure(self.hosts, cpu, duration)
        output(f"*** Results: {found}\n")
        return found


def endpoint(host: Any) -> IperfNode:
    """Where iperf3 runs; its descriptor is the caller's to close.  ValueError for a node without an
    address."""
    address = host.IP()
    if not address:
        raise ValueError(f"iperf: {host} has no address")
    return IperfNode(
        host.name, os.open(netns.NAMES / host.namespace, os.O_RDONLY | os.O_CLOEXEC), address
    )


def bits(text: str) -> int:
    """Bits per second from iperf's 10M; ValueError otherwise."""
    number, unit = (text[:-1], text[-1:].upper()) if text[-1:].isalpha() else (text, "")
    try:
        return round(float(number) * SUFFIXES.get(unit, 1 if not unit else float("nan")))
    except ValueError:
        raise ValueError(f"iperf: {text!r} is no rate; write it as in 10M") from None


def written(rate_bps: float, fmt: str | None) -> str:
    """A rate as iperf writes it, in the unit of `fmt`."""
    if fmt is not None and fmt.lower() not in UNITS:
        raise ValueError(f"iperf: fmt is k, m or g, not {fmt!r}")
    fits = [unit for unit in UNITS.values() if rate_bps >= unit[1]] or [UNITS["k"]]
    name, scale = UNITS[fmt.lower()] if fmt else fits[-1]
    value = rate_bps / scale
    return f"{value:.{max(0, 3 - len(str(int(value))))}f} {name}/sec"
