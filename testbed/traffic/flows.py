"""TCP flows by the thousand from one process, also over multipath TCP.

Each flow begins at its time, and ends when its last byte has arrived.  A socket keeps the namespace
that it was opened in, so one loop holds both ends of every flow, and one clock times them.  3,000
flows take a few seconds; an iperf3 process takes 15 ms to start.  The kernel discards what a
receiver reads (MSG_TRUNC), and a sender writes zeros.  Under a virtual clock threads read
(event_loop.py).
"""

from __future__ import annotations

import math
import select
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from weft.testbed.linux import clock, netns
from weft.testbed.linux.process import allow_more_descriptors
from weft.testbed.runs.network_handle import NetworkHandle, require_rate
from weft.testbed.traffic import mptcp
from weft.testbed.traffic.event_loop import EventLoop, WaitingReaders
from weft.testbed.traffic.flow_results import Flow as Flow
from weft.testbed.traffic.flow_results import FlowResult as FlowResult
from weft.testbed.traffic.flow_results import FlowResults as FlowResults
from weft.testbed.traffic.flow_results import TcpInfo, multipath_info, received_bytes, tcp_info
from weft.testbed.traffic.tcp import TCP_NOTSENT_LOWAT, UNSENT_BYTES, raise_error, tcp_sysctls
from weft.topologies.core.address import IPV4, AddressFamily

PORT = 7000
FIRST_SOURCE_PORT = 10_000  # of flows in a part of a network
MOST_SOURCE_PORTS = (1 << 16) - FIRST_SOURCE_PORT
CHUNK_BYTES = 1 << 18
BEGIN_S = 0.05  # from the opening of listeners to the first flow
MOST_THREADS = 4000  # that receive; of more flows a loop reads each packet
# connections before the first flow, and how long that may take
OPENED_TOGETHER, OPENED_S = 32, 30.0


@dataclass(frozen=True, kw_only=True)
class FlowOptions:
    """Options of run().

    deadline_s: time limit; endless flows end then.
    transport: tcp, or mptcp:subflows=4 for connections of four subflows.
    warm_up_s: time before received bytes count.
    at_warm_up: called at the end of that time, for example to read counters.
    open_before: open all connections before the first flow begins.  Linux repeats a lost handshake
        only after a second.
    port: of every listener; runs at the same time need different ones.
    then: returns the flow that begins when a flow has arrived, whatever its time, or None; it leads
        to a host that one of the first flows leads to.
    begin_s: the beginning on CLOCK_MONOTONIC, if other machines begin then with their parts of the
        network.  All have the same flows; each carries the ends of those that it has.
    family: IPv4, or IPv6 if the network has it.
    """

    deadline_s: float
    congestion_control: str
    transport: str = "tcp"
    warm_up_s: float = 0.0
    at_warm_up: Callable[[], None] | None = None
    open_before: bool = False
    port: int = PORT
    then: Callable[[Flow], Flow | None] | None = None
    begin_s: float | None = None
    family: AddressFamily = IPV4


def run(net: NetworkHandle, flows: Iterable[Flow], options: FlowOptions) -> FlowResults:
    """Run `flows` until all have ended, or until the deadline.

    Raises:
        ValueError: the kernel lacks the congestion control or transport; a flow does not lead from
            a host to another; the warm-up leaves nothing to measure; nothing limits an endless
            flow.
        TimeoutError: connections to be opened before the flows did not open.
    """
    ordered = sorted(flows)
    check(net, ordered, options)
    # both ends, and a duplicate for the thread that reads
    allow_more_descriptors(3 * len(ordered) + net.topology.servers)
    loop = _Loop(net, ordered, options)
    if not (count := mptcp.subflows(options.transport)):
        return netns.in_thread(loop.run)
    mptcp.check()
    try:
        mptcp.prepare(net, {flow.dst for flow in ordered}, count, options.port)
        return netns.in_thread(loop.run)
    finally:
        mptcp.forget(net)


def check(net: NetworkHandle, flows: Sequence[Flow], options: FlowOptions) -> None:
    """Raise ValueError for flows or options that run() cannot carry out."""
    available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    if options.congestion_control not in available:
        raise ValueError(
            f"this kernel has no congestion control {options.congestion_control} (it has "
            f"{', '.join(available)})"
        )
    if not 0 <= options.warm_up_s < options.deadline_s:
        raise ValueError(
            f"flows: warm_up_s must lie between 0 and the deadline, got {options.warm_up_s} of "
            f"{options.deadline_s}"
        )
    if options.family != IPV4 and (options.transport != "tcp" or options.begin_s):
        raise ValueError("flows: over IPv6 they need transport tcp and one machine")
    hosts = range(net.topology.servers)
    for flow in flows:
        if flow.src == flow.dst or flow.src not in hosts or flow.dst not in hosts:
            raise ValueError(
                f"flows: {flow} does not lead from one of {len(hosts)} hosts to another"
            )
        if flow.size_bytes is not None and flow.size_bytes < 1:
            raise ValueError(f"flows: {flow} is empty")
    if options.begin_s:
        _check_parts(flows, options)
    if any(flow.size_bytes is None for flow in flows):
        require_rate(net, "a flow without an end")


def _check_parts(flows: Sequence[Flow], options: FlowOptions) -> None:
    """Raise ValueError for flows or options that only a network on one machine has."""
    calls = options.at_warm_up or options.then  # of this machine's program
    if options.transport != "tcp" or options.open_before or calls:
        needs = "transport tcp, no open_before, at_warm_up or then"
        raise ValueError(f"flows: several machines need {needs}")
    if len(flows) > MOST_SOURCE_PORTS:
        raise ValueError(
            f"flows: {len(flows):,}; several machines carry at most {MOST_SOURCE_PORTS:,}"
        )


@dataclass
class _Connection:
    """A flow that has begun or will begin.

    sender: unused if the flow comes from another machine.
    unsent_bytes: not yet written to the socket.
    number: of the flow, if there are other machines.
    """

    flow: Flow
    sender: socket.socket
    unsent_bytes: float
    began_s: float = math.inf
    receiver: socket.socket | None = None
    received: int = 0
    counted_from: int = 0
    ended_s: float | None = None
    tcp: TcpInfo | None = None
    error: str | None = None
    number: int = 0

    @property
    def is_read(self) -> bool:
        """True while the receiver is open."""
        return self.receiver is not None and self.receiver.fileno() >= 0

    def result(self) -> FlowResult:
        received = self.received - self.counted_from
        return FlowResult(
            self.flow, self.began_s, self.ended_s, received, self.tcp, self.error, self.number
        )


@dataclass
class _Loop:
    net: NetworkHandle
    flows: Sequence[Flow]
    options: FlowOptions
    events: EventLoop = field(default_factory=EventLoop)
    listeners: list[socket.socket] = field(default_factory=list)
    # by sender's address, port, receiver
    expected: dict[tuple[str, int, int], _Connection] = field(default_factory=dict)
    connections: list[_Connection] = field(default_factory=list)
    opened_before: deque[_Connection] = field(default_factory=deque)
    open_senders: int = 0
    late_s: float = 0.0
    waste: bytearray = field(default_factory=lambda: bytearray(1 << 20))
    zeros: memoryview = field(default_factory=lambda: memoryview(bytes(CHUNK_BYTES)))
    calls_cost_nothing: bool = field(default_factory=clock.calls_cost_nothing)
    readers: WaitingReaders | None = None

    def __post_init__(self) -> None:
        """Divide the flows into those that begin on this machine, and those that only end here."""
        self.here = set(self.net.local_nodes)
        self.receivers = self.here.intersection(flow.dst for flow in self.flows)
        self.arriving = [
            (number, flow)
            for number, flow in enumerate(self.flows)
            if flow.dst in self.here and flow.src not in self.here
        ]
        self.numbers = [number for number, flow in enumerate(self.flows) if flow.src in self.here]
        self.flows = [self.flows[number] for number in self.numbers]

    def run(self) -> FlowResults:
        sysctls = tcp_sysctls(self.net, self.net.local_nodes[0])
        try:
            one_path = self.options.transport == "tcp"
            if self.calls_cost_nothing and one_path and len(self.flows) <= MOST_THREADS:
                self.readers = WaitingReaders(self.events, len(self.flows))
            self.listen()
            self.expect()
            if self.options.open_before:
                self.open_all()
            self.begin = self.options.begin_s or clock.monotonic() + BEGIN_S
            ended_s = self.serve()
            for connection in self.connections:
                self.finish(connection)
        finally:
            self.close()
        options = self.options
        return FlowResults(
            tuple(connection.result() for connection in self.connections),
            max(ended_s - options.warm_up_s, 1e-9),
            self.late_s,
            options.congestion_control,
            sysctls,
            options.transport,
        )

    def open_socket(self) -> socket.socket:
        """Return a new TCP socket in the namespace of this thread."""
        multipath = mptcp.subflows(self.options.transport)
        kind = socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        protocol = mptcp.PROTOCOL if multipath else socket.IPPROTO_TCP
        tcp_socket = socket.socket(self.options.family.number, kind, protocol)
        # also at a listener: DCTCP answers marks as a receiver, and says so in the handshake
        algorithm = self.options.congestion_control.encode()
        tcp_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, algorithm)
        return tcp_socket

    def listen(self) -> None:
        """Open a listener at every host that receives."""
        for host in sorted(self.receivers):
            netns.enter(self.net.netns(host))
            listener = self.open_socket()
            self.listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self.address(host), self.options.port))
            listener.listen(4096)
            self.events.watch(listener, select.EPOLLIN, partial(self.accept, listener, host))

    def expect(self) -> None:
        """Expect the flows from other machines, each from a port of its own."""
        for number, flow in self.arriving:
            connection = _Connection(flow, self.open_socket(), 0, number=number)
            source = (self.address(flow.src), FIRST_SOURCE_PORT + number)
            self.expected[*source, flow.dst] = connection
            self.connections.append(connection)
            self.open_senders += 1

    def serve(self) -> float:
        """Run until every flow has ended or the deadline; return that time, in s."""
        deadline_s = self.options.deadline_s
        warm_up_s = self.options.warm_up_s
        waiting = 0
        counted = False
        while True:
            now = clock.monotonic() - self.begin
            if not counted and now >= warm_up_s:
                counted = True
                self.count_from_here()
            waiting, now = self.start_due(waiting, now)
            if now >= deadline_s or (waiting == len(self.flows) and not self.open_senders):
                return min(now, deadline_s)
            next_s = self.flows[waiting].at_s if waiting < len(self.flows) else deadline_s
            next_s = min(next_s, deadline_s, math.inf if counted else warm_up_s)
            self.events.set_timer(self.begin + next_s)
            while (waiting < len(self.flows) or self.open_senders) and not self.events.turn():
                pass

    def start_due(self, waiting: int, now: float) -> tuple[int, float]:
        """Start the flows that are due, from number `waiting`; return the next number and time."""
        first = waiting
        while (
            waiting < len(self.flows) and self.flows[waiting].at_s <= now < self.options.deadline_s
        ):
            opened = self.opened_before
            number = self.numbers[waiting]
            flow = self.flows[waiting]
            self.start(opened.popleft() if opened else self.open(flow, number), now)
            waiting += 1
            # where calls cost nothing the clock has not moved
            if not self.calls_cost_nothing:
                now = clock.monotonic() - self.begin
        if waiting > first:
            now = clock.monotonic() - self.begin
            self.late_s = max(self.late_s, now - self.flows[waiting - 1].at_s)
        return waiting, now

    def count_from_here(self) -> None:
        for connection in self.connections:
            self.count(connection)
            connection.counted_from = connection.received
        if self.options.at_warm_up:
            self.options.at_warm_up()

    def count(self, connection: _Connection) -> None:
        """Update the received bytes of a flow that a thread reads."""
        receiver = connection.receiver
        if self.readers and connection.ended_s is None and receiver and connection.is_read:
            connection.received = received_bytes(receiver)

    def address(self, host: int) -> str:
        return self.options.family.address(self.net.topology.naming.address(host))

    def open_all(self) -> None:
        """Open a connection for each flow, some at a time."""
        for first in range(0, len(self.flows), OPENED_TOGETHER):
            opened = [self.open(flow) for flow in self.flows[first : first + OPENED_TOGETHER]]
            self.opened_before += opened
            self.events.set_timer(clock.monotonic() + OPENED_S)
            while any(connection.receiver is None for connection in opened):
                if self.events.turn():
                    raise TimeoutError(f"flows: connections were not open within {OPENED_S} s")

    def open(self, flow: Flow, number: int = 0) -> _Connection:
        """Open the connection of a flow; other machines know it by its number."""
        netns.enter(self.net.netns(flow.src))
        sender = self.open_socket()
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.options.transport == "tcp":  # multipath TCP does not take it before Linux 6.10
            sender.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        if self.options.begin_s:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sender.bind((self.address(flow.src), FIRST_SOURCE_PORT + number))
        unsent_bytes = math.inf if flow.size_bytes is None else flow.size_bytes
        connection = _Connection(flow, sender, unsent_bytes, number=number)
        sender.connect_ex((self.address(flow.dst), self.options.port))
        self.expected[*sender.getsockname()[:2], flow.dst] = connection
        return connection

    def start(self, connection: _Connection, now: float) -> None:
        """Begin the flow of a connection, open or not."""
        self.late_s = max(self.late_s, now - connection.flow.at_s)
        connection.began_s = now
        self.connections.append(connection)
        self.open_senders += 1
        sender = connection.sender
        self.events.watch(sender, select.EPOLLOUT | select.EPOLLIN, partial(self.send, connection))

    def accept(self, listener: socket.socket, host: int, events: int) -> None:
        while True:
            try:
                receiver, sender = listener.accept()
            except BlockingIOError:
                return
            connection = self.expected.pop((*sender[:2], host))
            connection.receiver = receiver
            if self.readers:
                receiver.setblocking(True)
                arrived = partial(self.arrived, connection)
                ended = partial(self.read_to_its_end, connection)
                self.readers.read(receiver, connection.flow.size_bytes, arrived, ended)
            else:
                receiver.setblocking(False)
                self.events.watch(receiver, select.EPOLLIN, partial(self.receive, connection))

    def send(self, connection: _Connection, events: int) -> None:
        """Write what the kernel takes; when all is written, wait for the receiver to close."""
        sender = connection.sender
        try:
            if events & select.EPOLLERR:
                raise_error(sender)
            if connection.unsent_bytes:
                connection.unsent_bytes -= sender.send(
                    self.zeros[: int(min(CHUNK_BYTES, connection.unsent_bytes))]
                )
                if not connection.unsent_bytes:
                    sender.shutdown(socket.SHUT_WR)
                    self.events.change(sender, select.EPOLLIN)
            elif events & (select.EPOLLIN | select.EPOLLHUP):
                self.finish(connection)
        except BlockingIOError:
            pass
        except OSError as error:
            connection.error = error.strerror
            self.finish(connection)

    def receive(self, connection: _Connection, events: int) -> None:
        """Discard what has arrived, and note the time if it was the last of it."""
        receiver = connection.receiver
        assert receiver
        try:
            count = receiver.recv_into(self.waste, 0, socket.MSG_TRUNC)
        except BlockingIOError:
            return
        except OSError as error:
            connection.error = error.strerror
            count = 0
        connection.received += count
        if count and connection.received == connection.flow.size_bytes:
            self.arrived(connection, clock.monotonic())
        if not count:
            self.events.drop(receiver)
            if connection.flow.src not in self.here:
                self.finish(connection)

    def arrived(self, connection: _Connection, at_s: float) -> None:
        """Note that all of a flow arrived at `at_s`, and begin the flow that follows."""
        assert connection.flow.size_bytes
        connection.received = connection.flow.size_bytes
        connection.ended_s = at_s - self.begin
        then = self.options.then
        if then and (next_flow := then(connection.flow)):
            self.start(self.open(next_flow._replace(at_s=connection.ended_s)), connection.ended_s)

    def read_to_its_end(self, connection: _Connection, error: str | None) -> None:
        """Handle the end of reading by a thread; `error` if one ended it."""
        # a reader that was stopped by drop() reports no error
        if connection.is_read:
            connection.error = error or connection.error
            self.count(connection)
            self.events.drop(connection.receiver)

    def finish(self, connection: _Connection) -> None:
        """Read the sender's counters and close both ends at once."""
        sender = connection.sender
        if sender.fileno() < 0:
            return
        self.count(connection)
        multipath = mptcp.subflows(self.options.transport)
        connection.tcp = multipath_info(sender) if multipath else tcp_info(sender)
        for end in (sender, connection.receiver):
            if end is not None and end.fileno() >= 0:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("=ii", 1, 0))
        self.drop(connection)
        self.open_senders -= 1

    def drop(self, connection: _Connection) -> None:
        """Close both ends of a connection unless they are closed."""
        if self.readers and connection.receiver and connection.is_read:
            self.readers.stop(connection.receiver)
        self.events.drop(connection.sender)
        self.events.drop(connection.receiver)

    def close(self) -> None:
        for connection in (*self.connections, *self.opened_before):
            self.drop(connection)
        for listener in self.listeners:
            self.events.drop(listener)
        if self.readers:
            self.readers.close()
        self.events.close()
