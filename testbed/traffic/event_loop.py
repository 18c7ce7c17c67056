"""An event loop with a timer that is exact to the nanosecond and needs no reading of the clock.

epoll rounds its timeout up to a millisecond, and the caller would read the clock each time: a third
of the system calls of a loop that passes packets under User-Mode Linux.  Here a kernel timer is one
more descriptor (timerfd_create(2)).
"""

from __future__ import annotations

import ctypes
import errno
import io
import os
import queue
import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from weft.testbed.linux import clock
from weft.testbed.linux.clock import Timer
from weft.testbed.linux.netns import libc

MOST_EVENTS = 256


class EventLoop:
    """Call the handler of each ready socket with its events."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._timer = Timer()
        self._epoll.register(self._timer, select.EPOLLIN)

    def set_timer(self, at_s: float) -> None:
        """Let turn() return from `at_s` of the monotonic clock on, whatever is ready."""
        self._timer.set(at_s)

    def watch(
        self, file: socket.socket | io.FileIO, events: int, handler: Callable[[int], None]
    ) -> None:
        """Call `handler` when `file` is ready for any of `events`."""
        self._handlers[file.fileno()] = handler
        self._epoll.register(file, events)

    def change(self, file: socket.socket, events: int) -> None:
        """Watch `file` for other events."""
        self._epoll.modify(file, events)

    def drop(self, file: socket.socket | None) -> None:
        """Stop watching `file` and close it, unless it is closed."""
        if file is not None and file.fileno() >= 0:
            if self._handlers.pop(file.fileno(), None):
                self._epoll.unregister(file)
            file.close()

    def turn(self) -> bool:
        """Wait for events and handle them; return whether the timer has expired."""
        due = False
        for fd, events in self._epoll.poll(None, MOST_EVENTS):
            if fd == self._timer.fileno():
                due = True
            elif handler := self._handlers.get(fd):
                handler(events)
        return due

    def close(self) -> None:
        """Close the timer and epoll; owners close their sockets."""
        self._timer.close()
        self._epoll.close()


AT_ONCE_BYTES = 1 << 30  # of one call; the kernel takes no more than 2 GiB
libc.recv.restype = ctypes.c_ssize_t
libc.recv.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

Arrived = Callable[[float], None]
EndCallback = Callable[[str | None], None]


class SocketReading(NamedTuple):
    """A socket to read, the expected bytes (None: unknown), and its callbacks."""

    fd: int
    size_bytes: int | None
    arrived: Arrived
    ended: EndCallback


class WaitingReaders:
    """Threads that discard all received bytes of a flow by one system call, with callbacks.

    A loop over epoll makes two system calls for each packet.  Under User-Mode Linux these take
    longer than the packet's whole way through a network.  recv() with MSG_WAITALL is woken as
    often, but stays in the kernel, which empties the queue, widens the window and acknowledges as
    if each packet had been read by itself.

    events: the loop that makes the callbacks.
    at_a_time: sockets expected at a time; for more, further threads start, which takes time.
    """

    def __init__(self, events: EventLoop, at_a_time: int) -> None:
        self._readings: queue.SimpleQueue[SocketReading | None] = queue.SimpleQueue()
        self._calls: deque[Callable[[], None]] = deque()
        # an eventfd, because a full pipe would block writers that the loop waits for
        self._call_count = io.FileIO(os.eventfd(0), "r+")
        events.watch(self._call_count, select.EPOLLIN, self._call_back)
        self._threads: list[threading.Thread] = []
        self._reading = 0
        for _ in range(at_a_time):
            self._start()

    def read(
        self, receiver: socket.socket, size_bytes: int | None, arrived: Arrived, ended: EndCallback
    ) -> None:
        """Read a connected, blocking socket until its peer closes it, stop(), or an error.

        Args:
            receiver: the socket.
            size_bytes: expected bytes; None: unknown.
            arrived: called with the time on CLOCK_MONOTONIC at which `size_bytes` had arrived.
            ended: called at the end, with the error or None.
        """
        fd = os.dup(receiver.fileno())  # the number stays reserved while a thread reads it
        self._reading += 1
        if self._reading > len(self._threads):
            self._start()
        self._readings.put(SocketReading(fd, size_bytes, arrived, partial(self._end, ended)))

    def stop(self, receiver: socket.socket) -> None:
        """Stop reading a socket, without sending anything."""
        try:
            receiver.shutdown(socket.SHUT_RD)
        except OSError as error:
            if error.errno != errno.ENOTCONN:  # an error ended it earlier
                raise

    def close(self) -> None:
        """Wait for the threads; all sockets have ended or were stopped.

        Pending callbacks are dropped.
        """
        for _ in self._threads:
            self._readings.put(None)
        for thread in self._threads:
            thread.join()
        self._call_count.close()

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _end(self, ended: EndCallback, error: str | None) -> None:
        self._reading -= 1
        ended(error)

    def _work(self) -> None:
        while reading := self._readings.get():
            reason = None
            try:
                self._read(reading)
            except OSError as error:
                reason = error.strerror
            finally:
                os.close(reading.fd)
            self._schedule(partial(reading.ended, reason))

    def _read(self, reading: SocketReading) -> None:
        unread = reading.size_bytes
        while count := _discard(reading.fd, unread or AT_ONCE_BYTES):
            if unread:
                unread -= count
                if not unread:
                    self._schedule(partial(reading.arrived, clock.monotonic()))

    def _schedule(self, call: Callable[[], None]) -> None:
        self._calls.append(call)
        os.eventfd_write(self._call_count.fileno(), 1)

    def _call_back(self, events: int) -> None:
        for _ in range(os.eventfd_read(self._call_count.fileno())):
            self._calls.popleft()()


def _discard(fd: int, most: int) -> int:
    """Discard `most` bytes, fewer at the end of the connection; return their number."""
    while True:
        count: int = libc.recv(
            fd, None, min(most, AT_ONCE_BYTES), socket.MSG_WAITALL | socket.MSG_TRUNC
        )
        if count >= 0:
            return count
        if (code := ctypes.get_errno()) != errno.EINTR:
            raise OSError(code, os.strerror(code))
