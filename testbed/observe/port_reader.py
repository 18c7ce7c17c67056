"""What every port of a network has sent, dropped and holds, read so often that it must cost little.

One dump for each namespace over a socket that is kept, and all of them joined.  The counters lie
where they lay the time before, so that numpy takes all of them out at once; a dump is parsed only
where something has another form than before.  testbed/measure/port_counters.py tells more, and
costs five times as much.

Nine tenths of the time is the kernel's.  So nodes at which hardly anything happens are asked only
every third time, and of the others, where all of them would take too much of the processor, those
that were asked longest ago.
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
# offsets in struct tc_stats, which begins with the bytes that were sent
STATS_DROPS, STATS_WAITING = 12, 28
LINK_SENT, LINK_DROPS = 24, 56  # offsets in LINK_64: bytes sent, packets dropped on sending
RECEIVE_BYTES = 1 << 15  # the kernel fills no more with one part of a dump
# the end of a dump's last part: NLM_F_MULTI, sequence 1
DONE = struct.pack("=IHHI", 20, netlink.NLMSG_DONE, 2, 1)
DONE_BYTES = 20
TRIES = 5
# nodes that are asked whatever that takes; of the latest reading, in the mean of what one takes
LEAST, WEIGHT = 8, 0.2
# how seldom quiet nodes are asked; bytes that a port of one may have sent meanwhile
SELDOM, BUSY_BYTES = 3, 4000

PortCountsArray = NDArray[np.int64]


class PortReading(NamedTuple):
    """All ports at one time, in the order of PortReader.ports.

    drops: of packets that found the queue full.  waiting: packets in the queue.
    at_s: when each port was asked, on CLOCK_MONOTONIC: not at every reading.
    """

    sent_bytes: PortCountsArray
    drops: PortCountsArray
    waiting: PortCountsArray
    at_s: NDArray[np.float64]


class PortReader:
    """Reads the ports of `net` until it is closed.

    ports: (node, port) of each row of a Reading.
    """

    def __init__(self, net: NetworkHandle, *, shaped: bool, most_cpu_s: float = math.inf) -> None:
        """shaped: whether ports have queues of their own; else only what devices tell is known, and
        nothing waits.

        most_cpu_s: of the processor's time, for one reading.
        """
        where = ports(net)
        self.ports = list(where.values())
        self._shaped = shaped
        self._row = {index: row for row, index in enumerate(where)}
        self._sockets = [netlink_of(net, node) for node in range(net.topology.nodes)]
        self._calls = [(each.socket.send, each.socket.recv) for each in self._sockets]
        body = tc.TCMSG.pack(0, 0, 0, 0, 0) if shaped else netlink.IF_STATS.pack(0, 0, 1)
        kind = netlink.RTM_GETQDISC if shaped else netlink.RTM_GETSTATS
        flags = netlink.NLM_F_REQUEST | netlink.NLM_F_DUMP
        self._request = netlink.HEADER.pack(16 + len(body), kind, flags, 1, 0) + body
        self._sizes: list[int] = []
        self._node_of_row = np.array([node for node, _ in self.ports])
        self._busy = np.ones(net.topology.nodes, dtype=bool)
        self._at_s = np.zeros(net.topology.nodes)
        self._most_cpu_s = most_cpu_s
        self._cost_s = 0.0  # of the processor's time, to ask one node
        self._kept = [b""] * net.topology.nodes
        self._last: PortReading | None = None
        self._turn = 0
        self._find(self._dumps(everything=True))

    def read(self, *, everything: bool = False) -> PortReading:
        """All ports, now, or a little before if they are quiet; those of one node at one instant.

        everything: all of them now.
        """
        self._turn += 1
        dumps = self._dumps(everything=everything)
        for _ in range(TRIES):
            data = np.frombuffer(b"".join(dumps), dtype=np.uint8)
            if (
                list(map(len, dumps)) == self._sizes
                and (_words(data, self._marks, 4) == self._indexes).all()
            ):
                break
            self._find(dumps)  # a device came or went, or its queue
        none = np.zeros(len(self.ports), dtype=np.int64)
        found = PortReading(none.copy(), none.copy(), none, self._at_s[self._node_of_row])
        found.sent_bytes[self._rows] = _words(data, self._sent, 8)
        found.drops[self._rows] = _words(data, self._drops, 4 if self._shaped else 8)
        if self._shaped:
            found.waiting[self._rows] = _words(data, self._waiting, 4)
        self._look_who_is_busy(found)
        return found

    def _look_who_is_busy(self, now: PortReading) -> None:
        """Nodes that were asked for this reading are quiet if none of their ports has sent much, or
        holds anything."""
        if self._last is not None:
            asked = now.at_s > self._last.at_s
            much = (now.sent_bytes - self._last.sent_bytes > BUSY_BYTES) | (now.waiting > 0)
            nodes = len(self._busy)
            self._busy[np.unique(self._node_of_row[asked])] = False
            self._busy |= np.bincount(self._node_of_row[asked & much], minlength=nodes) > 0
        self._last = now

    def _dumps(self, *, everything: bool) -> list[bytes]:
        """What each namespace tells, or told when it was asked last."""
        asked = np.ones(len(self._busy), dtype=bool) if everything else self._busy.copy()
        asked[self._turn % SELDOM :: SELDOM] = True
        nodes = np.flatnonzero(asked)
        if not everything and len(nodes) * self._cost_s > self._most_cpu_s:
            most = max(LEAST, int(self._most_cpu_s / self._cost_s))
            nodes = nodes[np.argsort(self._at_s[nodes], kind="stable")[:most]]
        began_s, request, kept, now, times = (
            clock.cpu_s(),
            self._request,
            self._kept,
            clock.monotonic,
            [],
        )
        for node in nodes.tolist():
            send, receive = self._calls[node]
            send(request)
            data = receive(RECEIVE_BYTES)
            while data[-DONE_BYTES:-8] != DONE:
                data += receive(RECEIVE_BYTES)
            kept[node] = data
            times.append(now())
        self._at_s[nodes] = times
        if times:
            cost_s = (clock.cpu_s() - began_s) / len(times)
            self._cost_s += (cost_s - self._cost_s) * (WEIGHT if self._cost_s else 1.0)
        return kept

    def _find(self, dumps: list[bytes]) -> None:
        """Note where in `dumps`, joined, each port's counters lie."""
        places, base = [], 0
        for dump in dumps:
            for index, mark, sent, drops, waiting in self._places(dump):
                if index in self._row:
                    at = (base + mark, base + sent, base + drops, base + waiting)
                    places.append((self._row[index], index, *at))
            base += len(dump)
        self._sizes = list(map(len, dumps))
        columns = np.array(places, dtype=np.int64).reshape(-1, 6).T
        self._rows, self._indexes, self._marks, self._sent, self._drops, self._waiting = columns

    def _places(self, dump: bytes) -> Iterator[tuple[int, int, int, int, int]]:
        """Of each device: its index, and where that, bytes sent, drops and waiting packets lie."""
        start = 0
        while start < len(dump):
            size, kind, *_ = netlink.HEADER.unpack_from(dump, start)
            body = start + netlink.HEADER.size
            if kind == netlink.NLMSG_ERROR:
                code = -struct.unpack_from("=i", dump, body)[0]
                raise netlink.NetlinkError(
                    code, f"dump of counters: {netlink.words(code, 0, dump[body:])}"
                )
            if kind == netlink.RTM_NEWQDISC:
                _, index, _, parent, _ = tc.TCMSG.unpack_from(dump, body)
                at = _attribute(dump, body + tc.TCMSG.size, start + size, TCA_STATS)
                if parent == tc.ROOT and at:
                    yield index, body + 4, at, at + STATS_DROPS, at + STATS_WAITING
            elif kind != netlink.NLMSG_DONE:
                index = netlink.IF_STATS.unpack_from(dump, body)[1]
                at = body + netlink.IF_STATS.size + netlink.ATTRIBUTE.size
                yield index, body + 4, at + LINK_SENT, at + LINK_DROPS, at
            start += (size + 3) & ~3

    def close(self) -> None:
        for each in self._sockets:
            each.close()
        self._sockets.clear()
        self._calls.clear()


def _attribute(data: bytes, at: int, end: int, wanted: int) -> int:
    """Where the payload of the attribute of type `wanted` begins, 0 if there is none."""
    while at + netlink.ATTRIBUTE.size <= end:
        size, kind = netlink.ATTRIBUTE.unpack_from(data, at)
        if kind & 0x3FFF == wanted:
            return at + netlink.ATTRIBUTE.size
        if size < netlink.ATTRIBUTE.size:
            break
        at += (size + 3) & ~3
    return 0


def _words(data: NDArray[np.uint8], offsets: PortCountsArray, size: int) -> PortCountsArray:
    """The unsigned words of `size` bytes at `offsets`."""
    gathered = data[offsets[:, None] + np.arange(size)]
    found: PortCountsArray = gathered.view(np.uint32 if size == 4 else np.uint64)[:, 0].astype(
        np.int64
    )
    return found
