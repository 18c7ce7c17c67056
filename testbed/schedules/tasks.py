"""A schedule as tasks, which begin when others have ended, and their replay.

Tasks are the same for every engine.  An engine carries messages and calls Progress.ended(); the
answer is which messages it may send, and when.  Computations pass as time.

Iterations of a schedule follow each other: each begins at all ranks when the one before has ended
at all of them.

Tasks are replayed on the simulated network of packets, and over Linux' TCP.  Over TCP a connection
for each two hosts is open all the time.  One loop holds both ends of all connections, and one
clock times them.  The kernel discards the payload (MSG_TRUNC).
"""

from __future__ import annotations

import heapq
import select
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from weft.daemons.transport.endpoint import Delivered
from weft.testbed.linux import clock
from weft.testbed.linux.process import allow_more_descriptors
from weft.testbed.packets.forwarding import FlowRoutes
from weft.testbed.packets.network import PacketNetwork
from weft.testbed.runs.network_handle import NetworkHandle, require_rate
from weft.testbed.schedules.goal import (
    Kind,
    Operation,
    OperationId,
    Schedule,
    ScheduleError,
    check,
    matched,
    operations,
)
from weft.testbed.traffic.event_loop import EventLoop
from weft.testbed.traffic.flow_results import tcp_info
from weft.testbed.traffic.flows import CHUNK_BYTES
from weft.testbed.traffic.tcp import connect, raise_error

NEVER = -1


@dataclass
class ReplayTask:
    """A message from host `src` to host `dst`, or a wait of `wait_ns`.

    size_bytes: of a message; 0 for a wait.
    waits: tasks that end or begin before this one begins.
    after_end, after_begin: tasks that wait for the end or the beginning of this one.
    operation: whose end is the end of this task; None for the beginning of an iteration.
    """

    src: int = -1
    dst: int = -1
    size_bytes: int = 0
    wait_ns: int = 0
    waits: int = 0
    after_end: list[int] = field(default_factory=list)
    after_begin: list[int] = field(default_factory=list)
    operation: OperationId | None = None
    iteration: int = 0


class MessageStart(NamedTuple):
    """Time at which a message may be sent."""

    time_ns: int
    task: int


class TaskGraph:
    """Tasks of `iterations` of a schedule.

    hosts: of each rank.

    Raises:
        ScheduleError: the schedule cannot be carried out, or its operations wait for each other.
    """

    def __init__(self, schedule: Schedule, hosts: Sequence[int], iterations: int = 1) -> None:
        check(schedule)
        self.ranks = len(schedule)
        self.tasks: list[ReplayTask] = []
        self.begins: list[int] = []
        self._send_of = matched(schedule)
        for _ in range(iterations):
            self._add_iteration(schedule, hosts)
        self._check_progress()

    def _add_iteration(self, schedule: Schedule, hosts: Sequence[int]) -> None:
        begin = self._add_begin()
        iteration = len(self.begins) - 1
        places = {
            place: self._add(_task(place, operation, hosts, iteration))
            for place, operation in operations(schedule)
        }
        posts = places | self._receives_that_others_follow(schedule, iteration)
        for place, operation in operations(schedule):
            own = posts[place]
            self._wait(own, begin)
            if own != places[place]:
                self._wait(places[place], own)
            if place in self._send_of:
                self._wait(places[place], places[self._send_of[place]])
            for number in operation.requires:
                self._wait(own, places[OperationId(place.rank, number)])
            for number in operation.begins_after:
                self._wait_for_begin(own, posts[OperationId(place.rank, number)])

    def _add_begin(self) -> int:
        """Add the beginning of an iteration, after all tasks of the one before."""
        before = range(self.begins[-1] if self.begins else 0, len(self.tasks))
        begin = self._add(ReplayTask(iteration=len(self.begins)))
        self.begins.append(begin)
        for number in before:
            self._wait(begin, number)
        return begin

    def _receives_that_others_follow(
        self, schedule: Schedule, iteration: int
    ) -> dict[OperationId, int]:
        """Add a task for the beginning of each receive whose beginning others wait for."""
        followed = {
            OperationId(place.rank, number)
            for place, operation in operations(schedule)
            for number in operation.begins_after
        }
        return {
            place: self._add(ReplayTask(iteration=iteration))
            for place in sorted(followed & self._send_of.keys())
        }

    def _add(self, task: ReplayTask) -> int:
        self.tasks.append(task)
        return len(self.tasks) - 1

    def _wait(self, later: int, earlier: int) -> None:
        self.tasks[earlier].after_end.append(later)
        self.tasks[later].waits += 1

    def _wait_for_begin(self, later: int, earlier: int) -> None:
        self.tasks[earlier].after_begin.append(later)
        self.tasks[later].waits += 1

    def _check_progress(self) -> None:
        """Raise ScheduleError unless everything ends where messages take no time."""
        progress = Progress(self)
        starts = progress.begin()
        while starts:
            start = starts.pop()
            starts += progress.ended(start.task, start.time_ns)
        for number, task in enumerate(self.tasks):
            if task.operation and progress.end_ns[number] == NEVER:
                raise ScheduleError(task.operation, "waits for an operation that waits for it")


def _task(
    place: OperationId, operation: Operation, hosts: Sequence[int], iteration: int
) -> ReplayTask:
    if operation.kind is Kind.SEND:
        return ReplayTask(
            src=hosts[place.rank],
            dst=hosts[operation.peer],
            size_bytes=max(1, operation.amount),
            operation=place,
            iteration=iteration,
        )
    wait_ns = operation.amount if operation.kind is Kind.CALC else 0
    return ReplayTask(wait_ns=wait_ns, operation=place, iteration=iteration)


class Progress:
    """The state of a replay.

    begin_ns, end_ns: of each task; NEVER if it has not begun or ended.
    mark: called when the first iteration has ended, and when all have.
    """

    def __init__(self, graph: TaskGraph, mark: Callable[[], None] = lambda: None) -> None:
        self.graph = graph
        self._mark = mark
        self._second = graph.begins[1] if len(graph.begins) > 1 else NEVER
        self.begin_ns = [NEVER] * len(graph.tasks)
        self.end_ns = [NEVER] * len(graph.tasks)
        self.left = len(graph.tasks)
        self._waits = [task.waits for task in graph.tasks]
        self._ready_ns = [0] * len(graph.tasks)

    def begin(self) -> list[MessageStart]:
        """Return the messages that may be sent at first."""
        return self._follow([(task, 0) for task, waits in enumerate(self._waits) if not waits], [])

    def ended(self, message: int, time_ns: int) -> list[MessageStart]:
        """Note that a message has arrived; return those that may be sent now or later."""
        return self._follow([], [(message, time_ns)])

    def _follow(
        self, begun: list[tuple[int, int]], ended: list[tuple[int, int]]
    ) -> list[MessageStart]:
        starts = []
        while begun or ended:
            if ended:
                number, time_ns = ended.pop()
                self.end_ns[number] = time_ns
                self.left -= 1
                if number == self._second or not self.left:
                    self._mark()
                begun += self._released(self.graph.tasks[number].after_end, time_ns)
                continue
            number, time_ns = begun.pop()
            self.begin_ns[number] = time_ns
            task = self.graph.tasks[number]
            begun += self._released(task.after_begin, time_ns)
            if task.size_bytes:
                starts.append(MessageStart(time_ns, number))
            else:
                ended.append((number, time_ns + task.wait_ns))
        return starts

    def _released(self, waiting: Sequence[int], time_ns: int) -> list[tuple[int, int]]:
        """Return those of `waiting` that wait for nothing any more, with their time."""
        released = []
        for number in waiting:
            self._ready_ns[number] = max(self._ready_ns[number], time_ns)
            self._waits[number] -= 1
            if not self._waits[number]:
                released.append((number, self._ready_ns[number]))
        return released

    @property
    def unarrived(self) -> int:
        """Number of messages that have not arrived."""
        ends = zip(self.graph.tasks, self.end_ns, strict=True)
        return sum(task.size_bytes > 0 and end_ns == NEVER for task, end_ns in ends)

    def times_ns(self) -> list[list[int | None]]:
        """Return the time of each rank in each iteration; None where an operation has not ended."""
        ends: list[list[int | None]] = [[0] * self.graph.ranks for _ in self.graph.begins]
        for task, end_ns in zip(self.graph.tasks, self.end_ns, strict=True):
            if not task.operation:
                continue
            rank, own = task.operation.rank, ends[task.iteration]
            begin_ns = self.end_ns[self.graph.begins[task.iteration]]
            if end_ns == NEVER:
                own[rank] = None
            elif (latest_ns := own[rank]) is not None:
                own[rank] = max(latest_ns, end_ns - begin_ns)
        return ends


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
