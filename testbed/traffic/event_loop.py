"""An event loop with a timer that is exact to the nanosecond and needs no reading of the clock.

epoll rounds its timeout up to a millisecond, and the caller would read the clock each time: a third
of the system calls of a loop that passes packets under User-Mode Linux.  Here a kernel timer is one
more descriptor (timerfd_create(2)).
"""

from __future__ import annotations

import io
import select
import socket
from collections.abc import Callable

from weft.testbed.linux.clock import Timer

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
