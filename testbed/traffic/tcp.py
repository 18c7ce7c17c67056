"""TCP at a network's hosts: its sysctls, and connections with both ends in this process.

Of a single flow, arrival times are recorded: a thread serves both ends.  The kernel discards the
payload (MSG_TRUNC); time and size of each read are recorded.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from weft.testbed.linux import clock, netns
from weft.testbed.runs.network_handle import NetworkHandle, require_rate
from weft.topologies.core.address import dotted


def tune(net: NetworkHandle, sysctls: Mapping[str, str]) -> None:
    """Set sysctls, by path under /proc/sys/net, at every host.

    Raises:
        OSError: the kernel refused one; the message has its name.
    """

    def work() -> None:
        for host in range(net.topology.servers):
            netns.enter(net.netns(host))
            for path, value in sysctls.items():
                netns.write_sysctl(path, value)

    netns.in_thread(work)


def tcp_sysctls(net: NetworkHandle, host: int = 0) -> dict[str, str]:
    """Return every TCP sysctl of a host, by name."""

    def work() -> dict[str, str]:
        netns.enter(net.netns(host))
        paths = sorted(Path("/proc/sys/net/ipv4").glob("tcp_*"))
        readable = (
            path for path in paths if os.access(path, os.R_OK) and path.name != "tcp_fastopen_key"
        )
        return {path.name: " ".join(path.read_text().split()) for path in readable}

    return netns.in_thread(work)


def counters(net: NetworkHandle, names: Collection[str]) -> dict[str, int]:
    """Return counters of the kernel's TCP (TcpExt of /proc/net/netstat), summed over all hosts.

    Raises:
        ValueError: the kernel has no such counter.
    """

    def work() -> list[dict[str, int]]:
        tables = []
        for host in range(net.topology.servers):
            netns.enter(net.netns(host))
            tables.append(parse_netstat(NETSTAT.read_text()))
        return tables

    tables = netns.in_thread(work)
    if missing := sorted(set(names) - tables[0].keys()):
        raise ValueError(f"this kernel does not count {', '.join(missing)} of TCP")
    return {name: sum(table[name] for table in tables) for name in names}


def parse_netstat(text: str) -> dict[str, int]:
    """Return the counters of TcpExt in the text of /proc/net/netstat, by name."""
    names, values = (line.split()[1:] for line in text.splitlines() if line.startswith("TcpExt:"))
    return dict(zip(names, map(int, values), strict=True))


NETSTAT = Path("/proc/thread-self/net/netstat")
CONNECT_S = 10.0
UNSENT_BYTES = 1 << 17  # unsent bytes that a sender keeps in the kernel
TCP_NOTSENT_LOWAT = 25


def connect(
    net: NetworkHandle, src: int, dst: int, congestion_control: str
) -> tuple[socket.socket, socket.socket]:
    """Return sender and receiver of a new connection from host `src` to host `dst`.

    They do not block.

    Raises:
        OSError: the connection failed; the message has both names.
    """
    naming = net.topology.naming
    with ExitStack() as stack:
        listener = stack.enter_context(_socket(net, dst, congestion_control))
        listener.bind((dotted(naming.address(dst)), 0))
        listener.listen(1)
        sender = stack.enter_context(_socket(net, src, congestion_control))
        sender.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        try:
            sender.connect(listener.getsockname())
            receiver, _ = listener.accept()
        except OSError as error:
            names = f"{naming.name(src)} -> {naming.name(dst)}"
            raise OSError(error.errno, f"TCP {names}: {error.strerror or error}") from None
        listener.close()
        stack.pop_all()
    for end in (sender, receiver):
        end.setblocking(False)
    return sender, receiver


def _socket(net: NetworkHandle, host: int, congestion_control: str) -> socket.socket:
    """Return a new socket of `host`.

    A listener has the congestion control, too: DCTCP answers marks as a receiver.
    """
    with netns.inside(net.netns(host)):
        tcp_socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    tcp_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion_control.encode())
    tcp_socket.settimeout(CONNECT_S)
    return tcp_socket


def raise_error(end: socket.socket) -> None:
    """Raise the error of a socket, if it has one."""
    code = end.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))


CHUNK_BYTES = 1 << 16
PAUSE_S = 0.5  # longest time until the thread notices stop()


@dataclass(frozen=True)
class Arrivals:
    """Reads of a receiver: `sizes_bytes[i]` at `times_s[i]` (CLOCK_MONOTONIC, ascending).

    error: reason of a broken connection, else None.
    """

    times_s: array[float]
    sizes_bytes: array[int]
    error: str | None = None

    def goodput_bps(self, from_s: float, until_s: float) -> float:
        """Return the payload bits received per second in that time."""
        first, last = bisect_left(self.times_s, from_s), bisect_right(self.times_s, until_s)
        return 8 * sum(self.sizes_bytes[first:last]) / (until_s - from_s)

    def stall_s(self, from_s: float, until_s: float) -> float:
        """Return the longest part of that time without an arrival, in s."""
        first, last = bisect_left(self.times_s, from_s), bisect_right(self.times_s, until_s)
        times = [from_s, *self.times_s[first:last], until_s]
        return max(after - before for before, after in pairwise(times))


class Stream:
    """TCP from server `src` to server `dst` at full speed, between start() and stop()."""

    def __init__(
        self, net: NetworkHandle, src: int, dst: int, *, congestion_control: str = "cubic"
    ) -> None:
        self.net = net
        self.src, self.dst = src, dst
        self.congestion_control = congestion_control
        self._times_s, self._sizes_bytes = array("d"), array("q")
        self._error: str | None = None
        self._stopping = threading.Event()

    def __enter__(self) -> Stream:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def arrivals(self) -> Arrivals:
        """The arrivals so far."""
        count = len(self._sizes_bytes)  # a size is noted after its time
        return Arrivals(self._times_s[:count], self._sizes_bytes[:count], self._error)

    def start(self) -> None:
        """Connect the two ends and begin to send.

        Raises:
            OSError: the connection failed; the message has both names.
            ValueError: the network has no rate.
        """
        require_rate(self.net, "a stream")
        self._sender, self._receiver = connect(
            self.net, self.src, self.dst, self.congestion_control
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the flow."""
        self._stopping.set()
        self._thread.join()
        self._sender.close()
        self._receiver.close()

    def _run(self) -> None:
        zeros, waste = bytes(CHUNK_BYTES), bytearray(1 << 20)
        with select.epoll() as poll:
            poll.register(self._sender, select.EPOLLOUT)
            poll.register(self._receiver, select.EPOLLIN)
            while not self._stopping.is_set():
                for fd, events in poll.poll(PAUSE_S):
                    try:
                        if fd == self._receiver.fileno():
                            self._receive(waste)
                            continue
                        if events & (select.EPOLLERR | select.EPOLLHUP):
                            raise_error(self._sender)
                        self._sender.send(zeros)
                    except BlockingIOError:
                        continue
                    except OSError as error:
                        self._error = error.strerror
                        return

    def _receive(self, waste: bytearray) -> None:
        count = self._receiver.recv_into(waste, 0, socket.MSG_TRUNC)
        self._times_s.append(clock.monotonic())
        self._sizes_bytes.append(count)
