"""What sockets receive, discarded in the kernel by one system call for all of a flow, each in a
thread of its own.

A loop over epoll makes two system calls for each packet that arrives.  Under User-Mode Linux they
take longer than all the packet's way through a network.  recv() with MSG_WAITALL is woken as often,
but does not come back from the kernel, which meanwhile takes packets from the queue, widens the
window and acknowledges as if each had been read by itself.
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
from weft.testbed.linux.netns import libc
from weft.testbed.traffic.event_loop import EventLoop

AT_ONCE_BYTES = 1 << 30  # of one call; the kernel takes no more than 2 GiB
libc.recv.restype = ctypes.c_ssize_t
libc.recv.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

Arrived = Callable[[float], None]
EndCallback = Callable[[str | None], None]


class SocketReading(NamedTuple):
    """A socket that is to be read by its descriptor, how many bytes are awaited, and who is
    told.
    """

    fd: int
    size_bytes: int | None
    arrived: Arrived
    ended: EndCallback


class WaitingReaders:
    """Threads that read sockets to their end, and call back in the loop `events`.

    at_a_time: sockets that are read at a time; if there are more, more threads are started, which
        takes some of the clock's time.
    """

    def __init__(self, events: EventLoop, at_a_time: int) -> None:
        self._wanted: queue.SimpleQueue[SocketReading | None] = queue.SimpleQueue()
        self._calls: deque[Callable[[], None]] = deque()
        # Counts the calls; a pipe would be full some day, and its writers wait for a loop that
        # waits for them.
        self._told = io.FileIO(os.eventfd(0), "r+")
        events.watch(self._told, select.EPOLLIN, self._call_back)
        self._threads: list[threading.Thread] = []
        self._reading = 0
        for _ in range(at_a_time):
            self._start()

    def read(
        self, receiver: socket.socket, size_bytes: int | None, arrived: Arrived, ended: EndCallback
    ) -> None:
        """Read a connected, blocking socket until its other end closes it, or stop() or an error
        ends it.

        arrived: called when `size_bytes` have come, with the time on the monotonic clock at which
            they had; never for None.  ended: called after the last byte, with the error if one
            ended it.
        """
        own = os.dup(
            receiver.fileno()
        )  # a number that no other socket can get while this one is read
        self._reading += 1
        if self._reading > len(self._threads):
            self._start()
        self._wanted.put(SocketReading(own, size_bytes, arrived, partial(self._end, ended)))

    def stop(self, receiver: socket.socket) -> None:
        """Let a socket be read no more; nothing is sent for it."""
        try:
            receiver.shutdown(socket.SHUT_RD)
        except OSError as error:
            if error.errno != errno.ENOTCONN:  # an error has ended it before
                raise

    def close(self) -> None:
        """Wait for the threads, whose sockets have all ended or been stopped.

        No callback is called any more.
        """
        for _ in self._threads:
            self._wanted.put(None)
        for thread in self._threads:
            thread.join()
        self._told.close()

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _end(self, ended: EndCallback, error: str | None) -> None:
        self._reading -= 1
        ended(error)

    def _work(self) -> None:
        while one := self._wanted.get():
            error = None
            try:
                self._read(one)
            except OSError as caught:
                error = caught.strerror
            finally:
                os.close(one.fd)
            self._tell(partial(one.ended, error))

    def _read(self, one: SocketReading) -> None:
        unread = one.size_bytes
        while count := _discard(one.fd, unread or AT_ONCE_BYTES):
            if unread:
                unread -= count
                if not unread:
                    self._tell(partial(one.arrived, clock.monotonic()))

    def _tell(self, call: Callable[[], None]) -> None:
        self._calls.append(call)
        os.eventfd_write(self._told.fileno(), 1)

    def _call_back(self, events: int) -> None:
        for _ in range(os.eventfd_read(self._told.fileno())):
            self._calls.popleft()()


def _discard(fd: int, most: int) -> int:
    """Bytes that were discarded: `most` unless the connection ended before, 0 if it had."""
    while True:
        count: int = libc.recv(
            fd, None, min(most, AT_ONCE_BYTES), socket.MSG_WAITALL | socket.MSG_TRUNC
        )
        if count >= 0:
            return count
        if (code := ctypes.get_errno()) != errno.EINTR:
            raise OSError(code, os.strerror(code))
