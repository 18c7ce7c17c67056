"""Capture of TCP flows where they arrive: their IPv6 flow labels, and how long they stand still.

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
from typing import NamedTuple, Self

from weft.testbed.linux import clock, netns, tc_filters
from weft.testbed.runs.network_handle import NetworkHandle, device
from weft.topologies.core.address import IPV4, AddressFamily

READ_S = 0.001
ETH_P_IP, ETH_P_IPV6 = 0x0800, 0x86DD
HEADERS_BYTES = {ETH_P_IP: 20, ETH_P_IPV6: 40}  # of IP without options
SOURCE = {ETH_P_IP: slice(12, 16), ETH_P_IPV6: slice(8, 24)}
LABEL_MASK = 0xFFFFF
SEQUENCES = 1 << 32
RESET = 0x04  # flag of TCP
BUFFER_BYTES = 1 << 22


@dataclass
class FlowArrivals:
    """Arrivals of one flow.

    labels: the different flow labels; 0 alone in IPv4.
    sequence: the latest sequence number.
    last_s: its arrival.
    still_s: longest time without a later one, of those since `since_s` of the capture.
    """

    sequence: int
    last_s: float
    labels: set[int] = field(default_factory=set)
    still_s: float = 0.0

    def add(self, label: int, sequence: int, now_s: float, since_s: float) -> None:
        """Count an arrival at `now_s`; data that came before are no progress."""
        self.labels.add(label)
        if 0 < (sequence - self.sequence) % SEQUENCES < SEQUENCES // 2:
            self.still_s = self.still_until(now_s, since_s)
            self.sequence, self.last_s = sequence, now_s

    def still_until(self, end_s: float, since_s: float) -> float:
        """Return the longest time without progress, in s, also one that lasts until `end_s`."""
        return max(self.still_s, end_s - max(self.last_s, since_s))


class LabelledPacket(NamedTuple):
    """A packet of TCP: flow label, sequence number, the source's packed address and port."""

    label: int
    sequence: int
    source: bytes
    port: int


def parse(packet: bytes, ethertype: int) -> LabelledPacket:
    """Return what an IP packet without options says of its flow."""
    label = struct.unpack_from(">I", packet)[0] & LABEL_MASK if ethertype == ETH_P_IPV6 else 0
    port, _, sequence = struct.unpack_from(">HHI", packet, HEADERS_BYTES[ethertype])
    return LabelledPacket(label, sequence, packet[SOURCE[ethertype]], port)


def to_port(ethertype: int, port: int) -> Sequence[tc_filters.Instruction]:
    """Return the classic BPF program that passes the first bytes of packets to a TCP port.

    It sees packets from their IP header on.  A reset is left out: a host without a socket answers
    with one, whose label is of no flow.
    """
    at = HEADERS_BYTES[ethertype]
    return [
        (0x28, 0, 0, at + 2),  # ldh: destination port, behind a header without options
        (0x15, 0, 3, port),
        (0x30, 0, 0, at + 13),  # ldb: flags
        (0x45, 1, 0, RESET),
        (0x06, 0, 0, at + 8),
        (0x06, 0, 0, 0),
    ]


class LabelCapture:
    """Capture flows to `port` of all servers during a `with` block.

    since_s: time on CLOCK_MONOTONIC from which on standing still counts; may be set meanwhile.
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
        label, sequence, source, port = parse(packet, self._ethertype)
        flow = self.flows.setdefault((server, source, port), FlowArrivals(sequence, now_s))
        flow.add(label, sequence, now_s, self.since_s)
