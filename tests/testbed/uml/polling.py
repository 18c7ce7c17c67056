"""Programs that poll until their child has written and ended, which it does after 1 ms.

Prints for each call how much later it notices, in ns, as JSON.
"""

import json
import mmap
import os
import select
import time
from collections.abc import Callable, Iterator
from ctypes import CDLL, Structure, byref, c_int, c_long, c_short, c_ulong, create_string_buffer

PSELECT6, FUTEX, EPOLL_PWAIT2 = 270, 202, 441  # numbers of x86-64
FUTEX_WAIT_PRIVATE = 128
AFTER_NS = 10**6
libc = CDLL(None)


class PollEntry(Structure):
    """struct pollfd."""

    _fields_ = (("fd", c_int), ("events", c_short), ("revents", c_short))


def ready(reader: int, child: int, written: mmap.mmap) -> Iterator[tuple[str, Callable[[], bool]]]:
    """Yield calls by name; each returns at once whether the child has written, or ended."""
    polled, epoll = select.poll(), select.epoll()
    polled.register(reader, select.POLLIN)
    epoll.register(reader, select.EPOLLIN)
    entry, no_time = PollEntry(reader, select.POLLIN, 0), (c_long * 2)(0, 0)
    event = create_string_buffer(12)

    def pselect6() -> bool:
        return bool(libc.syscall(PSELECT6, 64, byref(c_ulong(1 << reader)), 0, 0, no_time, 0))

    def epoll_pwait2() -> bool:
        return bool(libc.syscall(EPOLL_PWAIT2, epoll.fileno(), event, 1, no_time, 0, 0))

    def read() -> bool:
        try:
            return bool(os.read(reader, 1))
        except BlockingIOError:
            return False

    def futex() -> bool:
        libc.syscall(FUTEX, byref(c_int(1)), FUTEX_WAIT_PRIVATE, 0, 0)  # no 0 is there
        return bool(written[0])

    yield "sched_yield", lambda: bool(os.sched_yield() or written[0])
    yield "clock", lambda: bool(time.monotonic_ns() and written[0])
    yield "poll", lambda: bool(polled.poll(0))
    yield "ppoll", lambda: bool(libc.ppoll(byref(entry), 1, no_time, None))
    yield "select", lambda: bool(select.select([reader], [], [], 0)[0])
    yield "pselect6", pselect6
    yield "epoll_wait", lambda: bool(epoll.poll(0))
    yield "epoll_pwait", lambda: bool(libc.epoll_pwait(epoll.fileno(), event, 1, 0, None))
    yield "epoll_pwait2", epoll_pwait2
    yield "wait4", lambda: bool(os.waitpid(child, os.WNOHANG)[0])
    yield "read", read
    yield "futex", futex


def late_ns(number: int) -> tuple[str, int]:
    """Return the name of a call, and how much later than the child's end it notices."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    written = mmap.mmap(-1, 1)
    end_ns = time.monotonic_ns() + AFTER_NS
    child = os.fork()
    if not child:
        time.sleep(AFTER_NS / 1e9)
        written[0] = 1
        os.write(writer, b"x")
        os._exit(0)
    name, is_ready = list(ready(reader, child, written))[number]
    while not is_ready():
        pass
    return name, time.monotonic_ns() - end_ns


if __name__ == "__main__":
    print(json.dumps(dict(map(late_ns, range(12)))))
