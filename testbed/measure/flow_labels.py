"""Capture of TCP flows where they arrive: their IPv6 flow labels, and how long they are silent.

    with LabelCapture(net, IPV6, port=7000) as capture:
        ...
    capture.flows

A packet socket at each server passes what comes to `port`, so acknowledgements are left out.  A
thread empties the sockets every READ_S, which is the resolution of times.
"""

from __future__ import annotations

import math
import socket
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

from weft.testbed.linux import clock, netns, tc_filters
from weft.testbed.runs.network_handle import NetworkHandle, device
from weft.topologies.core.address import IPV4, AddressFamily

READ_S = 0.001
ETH_P_IP, ETH_P_IPV6 = 0x0800, 0x86DD
HEADERS_BYTES = {ETH_P_IP: 20, ETH_P_IPV6: 40}  # of IP without options
SOURCE = {ETH_P_IP: slice(12, 16), ETH_P_IPV6: slice(8, 24)}
LABEL_MASK = 0xFFFFF
BUFFER_BYTES = 1 << 22


@dataclass
class FlowArrivals:
    """Arrivals of one flow.

    labels: the different flow labels; 0 alone in IPv4.
    last_s: last arrival.
    silence_s: longest time between two arrivals, of those since `since_s` of the capture.
    """

    last_s: float
    labels: set[int] = field(default_factory=set)
    silence_s: float = 0.0

    def add(self, label: int, now_s: float, since_s: float) -> None:
        """Count an arrival at `now_s`; silence before `since_s` does not count."""
        self.labels.add(label)
        self.silence_s = max(self.silence_s, now_s - max(self.last_s, since_s))
        self.last_s = now_s

    def silence_until(self, end_s: float, since_s: float) -> float:
        """Return the longest silence, in s, also one that has not ended at `end_s`."""
        return max(self.silence_s, end_s - max(self.last_s, since_s))


def parse(packet: bytes, ethertype: int) -> tuple[int, bytes, int]:
    """Return the flow label, the source's packed address and TCP port of an IP packet."""
    label = struct.unpack_from(">I", packet)[0] & LABEL_MASK if ethertype == ETH_P_IPV6 else 0
    (port,) = struct.unpack_from(">H", packet, HEADERS_BYTES[ethertype])
    return label, packet[SOURCE[ethertype]], port


def to_port(ethertype: int, port: int) -> Sequence[tc_filters.Instruction]:
    """Return the classic BPF program that passes the first bytes of packets to a TCP port.

    It sees packets from their IP header on.
    """
    at = HEADERS_BYTES[ethertype]
    return [
        (0x28, 0, 0, at + 2),  # ldh: destination port, behind a header without options
        (0x15, 0, 1, port),
        (0x06, 0, 0, at + 4),
        (0x06, 0, 0, 0),
    ]


class LabelCapture:
    """Capture flows to `port` of all servers during a `with` block.

    since_s: time on CLOCK_MONOTONIC from which on silence counts; may be set meanwhile.
    flows: arrivals by flow: the server that receives it, the sender's packed address, and its port.
    """

    def __init__(self, net: NetworkHandle, family: AddressFamily, port: int) -> None:
        self.since_s = math.inf  # not yet
        self.flows: dict[tuple[int, bytes, int], FlowArrivals] = {}
        self._ethertype = ETH_P_IP if family == IPV4 else ETH_P_IPV6
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._sockets: dict[int, socket.socket] = {}
        program = to_port(self._ethertype, port)
        for server in range(net.topology.servers):
            with netns.inside(net.netns(server)):
                # of one protocol, so that it gets arrivals alone; none before it has its filter
                opened = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
                tc_filters.filter_socket(opened, program)
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
                first_port, *_ = net.topology.ports(server)[0]
                opened.bind((device(net, server, first_port), self._ethertype))
            opened.setblocking(False)
            self._sockets[server] = opened

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        for opened in self._sockets.values():
            opened.close()

    def _read(self) -> None:
        while not self._end.is_set():
            clock.sleep(READ_S)
            now_s = clock.monotonic()
            for server, opened in self._sockets.items():
                with suppress(BlockingIOError):
                    while True:
                        self._add(server, opened.recv(64), now_s)

    def _add(self, server: int, packet: bytes, now_s: float) -> None:
        label, source, port = parse(packet, self._ethertype)
        flow = self.flows.setdefault((server, source, port), FlowArrivals(last_s=now_s))
        flow.add(label, now_s, self.since_s)
