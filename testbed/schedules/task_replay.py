"""Replay of tasks: on the simulated network of packets, and over Linux' TCP.

Over TCP a connection for each two hosts is open all the time.  One loop holds both ends of all
connections, and one clock times them.  The kernel discards the payload (MSG_TRUNC).
"""

from __future__ import annotations

import heapq
import select
import socket
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from weft.daemons.transport.results import Delivered
from weft.testbed.linux import clock
from weft.testbed.linux.process import allow_more_descriptors
from weft.testbed.packets.forwarding import FlowRoutes
from weft.testbed.packets.network import PacketNetwork
from weft.testbed.runs.network_handle import NetworkHandle, require_rate
from weft.testbed.schedules.task_graph import MessageStart, Progress, TaskGraph
from weft.testbed.traffic.event_loop import EventLoop
from weft.testbed.traffic.flow_results import tcp_info
from weft.testbed.traffic.flows import CHUNK_BYTES
from weft.testbed.traffic.tcp import connect, raise_error


def replay_packets(
    net: PacketNetwork,
    graph: TaskGraph,
    deadline_ns: int,
    mark: Callable[[], None] = lambda: None,
    routes: FlowRoutes | None = None,
) -> Progress:
    """Return the progress at `deadline_ns`, see Progress for `mark`.

    Messages between two hosts share a connection.

    routes: of messages where servers forward, one for each two hosts; None where switches do.
    """
    progress = Progress(graph, mark)
    messages = _Messages(net, graph, routes)
    for start in sorted(progress.begin()):
        messages.send(start)

    def arrived(delivered: Delivered) -> None:
        task = messages.tasks[delivered.flow] if routes else delivered.flow
        for start in sorted(progress.ended(task, delivered.at_ns)):
            messages.send(start)

    net.run_until(deadline_ns, arrived)
    return progress


class _Messages:
    """Messages of tasks on simulated packets; `tasks` has the task of each."""

    def __init__(self, net: PacketNetwork, graph: TaskGraph, routes: FlowRoutes | None) -> None:
        self.tasks: list[int] = []
        self._net, self._graph, self._routes = net, graph, routes
        self._connections: dict[tuple[int, int], int] = {}

    def send(self, start: MessageStart) -> None:
        """Send the message of a task."""
        task = self._graph.tasks[start.task]
        ends = task.src, task.dst
        # a message with a route of its own is its own flow
        flow = len(self.tasks) if self._routes else start.task
        connection = self._connections.get(ends, -1)
        number = self._net.send(start.time_ns, *ends, flow, task.size_bytes, connection)
        self.tasks.append(start.task)
        first = self._connections.setdefault(ends, number)
        if self._routes:
            self._net.route(number, *self._routes.both_ways(first, *ends))


@dataclass
class _Connection:
    """Messages from one host to another.

    unsent_bytes: of all messages that have begun.
    unread: task and bytes of each of them, in their order.
    """

    sender: socket.socket
    receiver: socket.socket
    unsent_bytes: int = 0
    unread: deque[tuple[int, int]] = field(default_factory=deque)
    unread_bytes: int = 0


class TcpReplay:
    """Connections of a network, and the messages that wait."""

    def __init__(self, net: NetworkHandle, control: str) -> None:
        self.net = net
        self.control = control
        self._events = EventLoop()
        self._pending: list[MessageStart] = []
        self._connections: dict[tuple[int, int], _Connection] = {}
        self._zeros = memoryview(bytes(CHUNK_BYTES))
        self._waste = bytearray(1 << 20)

    def run(self, graph: TaskGraph, deadline_s: float, mark: Callable[[], None]) -> Progress:
        """Return the progress at the end, or at `deadline_s`; see Progress for `mark`.

        Raises:
            OSError: a connection did not open, or broke.
            ValueError: under the virtual clock, links have no rate.
        """
        require_rate(self.net, "a replay")
        self._graph, self._progress = graph, Progress(graph, mark)
        pairs = sorted({(task.src, task.dst) for task in graph.tasks if task.size_bytes})
        allow_more_descriptors(2 * len(pairs) + self.net.topology.nodes)
        try:
            for src, dst in pairs:
                self._connections[src, dst] = self._open(src, dst)
            self._serve(deadline_s)
        finally:
            for connection in self._connections.values():
                self._events.drop(connection.sender)
                self._events.drop(connection.receiver)
            self._events.close()
        return self._progress

    def repeated_packets(self) -> int:
        """Return the segments that TCP has sent again so far."""
        senders = (connection.sender for connection in self._connections.values())
        return sum(tcp_info(sender).retransmissions for sender in senders)

    def _open(self, src: int, dst: int) -> _Connection:
        """Open the connection from host `src` to host `dst`."""
        sender, receiver = connect(self.net, src, dst, self.control)
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _Connection(sender, receiver)
        self._events.watch(sender, 0, partial(self._send, connection))
        self._events.watch(receiver, select.EPOLLIN, partial(self._receive, connection))
        return connection

    def _serve(self, deadline_s: float) -> None:
        self._begin_s = clock.monotonic()
        self._wait(self._progress.begin())
        while self._progress.left:
            now_ns = self._now_ns()
            if now_ns >= 1e9 * deadline_s:
                return
            while self._pending and self._pending[0].time_ns <= now_ns:
                self._start(heapq.heappop(self._pending).task)
            next_s = min([deadline_s, *(start.time_ns / 1e9 for start in self._pending[:1])])
            self._events.set_timer(self._begin_s + next_s)
            self._events.turn()

    def _now_ns(self) -> int:
        return round(1e9 * (clock.monotonic() - self._begin_s))

    def _wait(self, starts: Iterable[MessageStart]) -> None:
        for start in starts:
            heapq.heappush(self._pending, start)

    def _start(self, number: int) -> None:
        """Write a message behind those that its connection still has."""
        task = self._graph.tasks[number]
        connection = self._connections[task.src, task.dst]
        connection.unread.append((number, task.size_bytes))
        connection.unsent_bytes += task.size_bytes
        self._send(connection, select.EPOLLOUT)

    def _send(self, connection: _Connection, events: int) -> None:
        """Write what the kernel takes, and wait for room if any is left."""
        if events & (select.EPOLLERR | select.EPOLLHUP):
            raise_error(connection.sender)
        try:
            while connection.unsent_bytes:
                part = self._zeros[: min(CHUNK_BYTES, connection.unsent_bytes)]
                connection.unsent_bytes -= connection.sender.send(part)
        except BlockingIOError:
            pass
        wanted = select.EPOLLOUT if connection.unsent_bytes else 0
        self._events.change(connection.sender, wanted)

    def _receive(self, connection: _Connection, events: int) -> None:
        """Discard what has arrived; messages that are complete end now."""
        connection.unread_bytes += connection.receiver.recv_into(self._waste, 0, socket.MSG_TRUNC)
        while connection.unread and connection.unread[0][1] <= connection.unread_bytes:
            number, size_bytes = connection.unread.popleft()
            connection.unread_bytes -= size_bytes
            self._wait(self._progress.ended(number, self._now_ns()))
