"""One TCP flow and the times at which its bytes arrive.

A thread serves both ends.  The kernel discards the payload (MSG_TRUNC); time and size of each read
are recorded.
"""

from __future__ import annotations

import select
import socket
import threading
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise

from weft.testbed.linux import clock
from weft.testbed.runs.network_handle import NetworkHandle, require_rate
from weft.testbed.traffic.tcp import connect, raise_error

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
