"""Cheap, frequent readings of every port's counters: bytes sent, drops, waiting packets.

One netlink dump for each namespace over a socket that stays open.  Counters keep their offsets in
the dump, so numpy extracts all at once; a dump is parsed only if its layout changed.
testbed/measure/port_counters.py reads more and costs five times as much.

Nine tenths of the time is the kernel's.  Quiet nodes are therefore read every third time, and if
the busy ones exceed the time limit, those that were read longest ago.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.testbed.linux import clock, netlink, tc
from weft.testbed.runs.network_handle import NetworkHandle, netlink_of, ports

TCA_STATS = 3
# offsets in struct tc_stats, which begins with the bytes sent
STATS_DROPS, STATS_WAITING = 12, 28
# offsets in LINK_64: bytes sent, packets dropped on sending
LINK_SENT, LINK_DROPS = 24, 56
RECEIVE_BYTES = 1 << 15  # the kernel fills at most this in one part of a dump
# the end of a dump's last part: NLM_F_MULTI, sequence 1
DONE = struct.pack("=IHHI", 20, netlink.NLMSG_DONE, 2, 1)
DONE_BYTES = 20
TRIES = 5
LEAST = 8  # nodes read each time, regardless of the time limit
WEIGHT = 0.2  # of the latest reading in the mean time of one node
SELDOM = 3  # readings between two of a quiet node
BUSY_BYTES = 4000  # sent by a port since its last reading, above which its node is busy

PortCountsArray = NDArray[np.int64]


class PortReading(NamedTuple):
    """Counters of all ports, in the order of PortReader.ports.

    drops: packets that found the queue full.  waiting: packets in the queue.
    at_s: time of the port's last reading, on CLOCK_MONOTONIC.
    """

    sent_bytes: PortCountsArray
    drops: PortCountsArray
    waiting: PortCountsArray
    at_s: NDArray[np.float64]


class PortReader:
    """Read the ports of `net` until closed.

    ports: (node, port) of each row of a reading.
    """

    def __init__(self, net: NetworkHandle, *, shaped: bool, most_cpu_s: float = math.inf) -> None:
        """Open a netlink socket in each namespace and read all ports once.

        Args:
            net: the network.
            shaped: ports have queueing disciplines; else devices are read, and nothing waits.
            most_cpu_s: processor time of one reading.
        """
        port_of = ports(net)
        self.ports = list(port_of.values())
        self._shaped = shaped
        self._row = {index: row for row, index in enumerate(port_of)}
        self._sockets = [netlink_of(net, node) for node in range(net.topology.nodes)]
        self._calls = [(opened.socket.send, opened.socket.recv) for opened in self._sockets]
        self._request = _dump_request(shaped)
        self._sizes: list[int] = []
        self._node_of_row = np.array([node for node, _ in self.ports])
        self._busy = np.ones(net.topology.nodes, dtype=bool)
        self._at_s = np.zeros(net.topology.nodes)
        self._most_cpu_s = most_cpu_s
        self._cost_s = 0.0  # processor time of one node, mean
        self._latest = [b""] * net.topology.nodes
        self._last: PortReading | None = None
        self._turn = 0
        self._find(self._dumps(everything=True))

    def read(self, *, everything: bool = False) -> PortReading:
        """Read the counters; quiet nodes may keep those of an earlier reading.

        The counters of one node are of one instant.

        Args:
            everything: read all nodes now.
        """
        self._turn += 1
        dumps = self._dumps(everything=everything)
        for _ in range(TRIES):
            data = np.frombuffer(b"".join(dumps), dtype=np.uint8)
            same_sizes = list(map(len, dumps)) == self._sizes
            if same_sizes and (_words(data, self._marks, 4) == self._indexes).all():
                break
            self._find(dumps)  # a device or its queue came or went
        zeros = np.zeros(len(self.ports), dtype=np.int64)
        reading = PortReading(zeros.copy(), zeros.copy(), zeros, self._at_s[self._node_of_row])
        reading.sent_bytes[self._rows] = _words(data, self._sent, 8)
        reading.drops[self._rows] = _words(data, self._drops, 4 if self._shaped else 8)
        if self._shaped:
            reading.waiting[self._rows] = _words(data, self._waiting, 4)
        self._update_busy(reading)
        return reading

    def _update_busy(self, now: PortReading) -> None:
        """Mark a node that was just read as quiet if its ports sent little and nothing waits."""
        if self._last is not None:
            fresh = now.at_s > self._last.at_s
            active = (now.sent_bytes - self._last.sent_bytes > BUSY_BYTES) | (now.waiting > 0)
            nodes = len(self._busy)
            self._busy[np.unique(self._node_of_row[fresh])] = False
            self._busy |= np.bincount(self._node_of_row[fresh & active], minlength=nodes) > 0
        self._last = now

    def _due(self) -> NDArray[np.int64]:
        """Return the nodes to read within the time limit."""
        due = self._busy.copy()
        due[self._turn % SELDOM :: SELDOM] = True
        nodes = np.flatnonzero(due)
        if len(nodes) * self._cost_s > self._most_cpu_s:
            most = max(LEAST, int(self._most_cpu_s / self._cost_s))
            nodes = nodes[np.argsort(self._at_s[nodes], kind="stable")[:most]]
        return nodes

    def _dumps(self, *, everything: bool) -> list[bytes]:
        """Return the latest dump of each namespace, after reading those that are due."""
        nodes = np.arange(len(self._busy)) if everything else self._due()
        start_s = clock.cpu_s()
        times = []
        for node in nodes.tolist():
            send, receive = self._calls[node]
            send(self._request)
            data = receive(RECEIVE_BYTES)
            while data[-DONE_BYTES:-8] != DONE:
                data += receive(RECEIVE_BYTES)
            self._latest[node] = data
            times.append(clock.monotonic())
        self._at_s[nodes] = times
        if times:
            cost_s = (clock.cpu_s() - start_s) / len(times)
            self._cost_s += (cost_s - self._cost_s) * (WEIGHT if self._cost_s else 1.0)
        return self._latest

    def _find(self, dumps: list[bytes]) -> None:
        """Set the offsets of each port's counters in the joined `dumps`."""
        places = []
        base = 0
        for dump in dumps:
            for index, *offsets in self._places(dump):
                if index in self._row:
                    places.append((self._row[index], index, *(base + offset for offset in offsets)))
            base += len(dump)
        self._sizes = list(map(len, dumps))
        columns = np.array(places, dtype=np.int64).reshape(-1, 6).T
        self._rows, self._indexes, self._marks, self._sent, self._drops, self._waiting = columns

    def _places(self, dump: bytes) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield the index of each device and the offsets of its index and counters.

        The counters are bytes sent, drops and waiting packets.
        """
        start = 0
        while start < len(dump):
            size, kind, *_ = netlink.HEADER.unpack_from(dump, start)
            body = start + netlink.HEADER.size
            if kind == netlink.NLMSG_ERROR:
                code = -struct.unpack_from("=i", dump, body)[0]
                reason = netlink.words(code, 0, dump[body:])
                raise netlink.NetlinkError(code, f"dump of counters: {reason}")
            if kind == netlink.RTM_NEWQDISC:
                _, index, _, parent, _ = tc.TCMSG.unpack_from(dump, body)
                stats = _payload_offset(dump, body + tc.TCMSG.size, start + size, TCA_STATS)
                if parent == tc.ROOT and stats:
                    yield index, body + 4, stats, stats + STATS_DROPS, stats + STATS_WAITING
            elif kind != netlink.NLMSG_DONE:
                index = netlink.IF_STATS.unpack_from(dump, body)[1]
                link = body + netlink.IF_STATS.size + netlink.ATTRIBUTE.size
                yield index, body + 4, link + LINK_SENT, link + LINK_DROPS, link
            start += (size + 3) & ~3

    def close(self) -> None:
        for opened in self._sockets:
            opened.close()
        self._sockets.clear()
        self._calls.clear()


def _dump_request(shaped: bool) -> bytes:
    """Return the request for a dump of queueing disciplines, or of devices."""
    body = tc.TCMSG.pack(0, 0, 0, 0, 0) if shaped else netlink.IF_STATS.pack(0, 0, 1)
    kind = netlink.RTM_GETQDISC if shaped else netlink.RTM_GETSTATS
    flags = netlink.NLM_F_REQUEST | netlink.NLM_F_DUMP
    return netlink.HEADER.pack(16 + len(body), kind, flags, 1, 0) + body


def _payload_offset(data: bytes, start: int, end: int, attribute: int) -> int:
    """Return the offset of the payload of an attribute, 0 if it is missing."""
    while start + netlink.ATTRIBUTE.size <= end:
        size, kind = netlink.ATTRIBUTE.unpack_from(data, start)
        if kind & 0x3FFF == attribute:
            return start + netlink.ATTRIBUTE.size
        if size < netlink.ATTRIBUTE.size:
            break
        start += (size + 3) & ~3
    return 0


def _words(data: NDArray[np.uint8], offsets: PortCountsArray, size: int) -> PortCountsArray:
    """Return the unsigned words of `size` bytes at `offsets`."""
    kind = np.uint32 if size == 4 else np.uint64
    words: PortCountsArray = data[offsets[:, None] + np.arange(size)].view(kind)[:, 0]
    return words.astype(np.int64)
