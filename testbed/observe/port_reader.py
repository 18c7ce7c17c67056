"""Frequent readings of every port's counters within a time limit: bytes sent, drops, packets.

One netlink dump for each namespace.  Nearly all of the time is the kernel's.  Quiet nodes are
therefore read every third time, and if the busy ones exceed the time limit, those that were read
longest ago.  testbed/measure/kernel_counters.py reads more, of all nodes at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.testbed.linux import clock, netlink, tc
from weft.testbed.runs.network_handle import NetworkHandle, netlink_of, ports

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
        nodes = net.topology.nodes
        self.ports = list(port_of.values())
        self._row = {index: row for row, index in enumerate(port_of)}
        self._counters = _of_queues if shaped else _of_devices
        self._sockets = [netlink_of(net, node) for node in range(nodes)]
        self._node_of_row = np.array([node for node, _ in self.ports])
        self._rows = [np.flatnonzero(self._node_of_row == node) for node in range(nodes)]
        self._values = np.zeros((3, len(self.ports)), dtype=np.int64)
        self._busy = np.ones(nodes, dtype=bool)
        self._at_s = np.zeros(nodes)
        self._most_cpu_s = most_cpu_s
        self._cost_s = 0.0  # processor time of one node, mean
        self._last: PortReading | None = None
        self._turn = 0
        self._read_nodes(np.arange(nodes))

    def read(self, *, everything: bool = False) -> PortReading:
        """Read the counters; quiet nodes may keep those of an earlier reading.

        The counters of one node are of one instant.

        Args:
            everything: read all nodes now.
        """
        self._turn += 1
        self._read_nodes(np.arange(len(self._busy)) if everything else self._due())
        sent_bytes, drops, waiting = self._values.copy()
        reading = PortReading(sent_bytes, drops, waiting, self._at_s[self._node_of_row])
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

    def _read_nodes(self, nodes: NDArray[np.int64]) -> None:
        """Read the counters of `nodes`; a port whose queue is gone has zeros."""
        begin_s = clock.cpu_s()
        for node in nodes.tolist():
            self._values[:, self._rows[node]] = 0
            for index, *values in self._counters(self._sockets[node]):
                if index in self._row:
                    self._values[:, self._row[index]] = values
            self._at_s[node] = clock.monotonic()
        if len(nodes):
            cost_s = (clock.cpu_s() - begin_s) / len(nodes)
            self._cost_s += (cost_s - self._cost_s) * (WEIGHT if self._cost_s else 1.0)

    def close(self) -> None:
        for opened in self._sockets:
            opened.close()
        self._sockets.clear()


def _of_queues(socket: netlink.Socket) -> Iterator[tuple[int, int, int, int]]:
    """Yield index, bytes sent, drops and waiting packets of each shaped device."""
    for index, queue in tc.root_counters(socket):
        yield index, queue.sent_bytes, queue.drops, queue.waiting_packets


def _of_devices(socket: netlink.Socket) -> Iterator[tuple[int, int, int, int]]:
    """Yield the same of each device, where nothing waits."""
    for index, (_, _, _, sent_bytes, _, _, _, drops) in socket.link_counters().items():
        yield index, sent_bytes, drops, 0
