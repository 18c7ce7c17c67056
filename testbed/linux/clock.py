"""The one clock: what time it is, and waiting for time to pass.

Everything in testbed/ and experiments/ asks here, so that another clock can take this one's place:
a virtual one, whose time passes as fast as it is told.  The functions are attributes of this
module, so that a call costs what the system's own costs; ask for them as `clock.monotonic()`,
because a function that was imported by name stays the one it was.

A measurement of the processor's own time (`cpu_s`) is the machine's under every clock.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
MONOTONIC = 1  # CLOCK_MONOTONIC
ABSOLUTE = 1  # TFD_TIMER_ABSTIME
libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Clock:
    """The functions that tell time and wait.

    monotonic, monotonic_ns: seconds and nanoseconds since a fixed moment, never going back
        (CLOCK_MONOTONIC).
    wall, wall_ns: seconds and nanoseconds since 1970 (CLOCK_REALTIME, by which the kernel stamps
        packets).
    sleep: return when so many seconds have passed.
    """

    monotonic: Callable[[], float]
    monotonic_ns: Callable[[], int]
    wall: Callable[[], float]
    wall_ns: Callable[[], int]
    sleep: Callable[[float], None]


SYSTEM = Clock(time.monotonic, time.monotonic_ns, time.time, time.time_ns, time.sleep)

monotonic = SYSTEM.monotonic
monotonic_ns = SYSTEM.monotonic_ns
wall = SYSTEM.wall
wall_ns = SYSTEM.wall_ns
sleep = SYSTEM.sleep
cpu_s = time.process_time  # seconds of processor time that this process has used


@cache
def is_virtual() -> bool:
    """Whether the kernel's clock is virtual: computing takes no time, and no timer is late
    (testbed/uml/uml.py).
    """
    return any(word.startswith("time-travel") for word in _told_at_boot())


@cache
def calls_cost_nothing() -> bool:
    """Whether the kernel's clock is virtual and system calls take none of its time, as is so unless
    it was told.
    """
    return is_virtual() and not any(
        word.startswith("time-travel-syscall=") for word in _told_at_boot()
    )


def _told_at_boot() -> list[str]:
    return Path("/proc/cmdline").read_text().split()


def let_kernel_work() -> None:
    """Return when the kernel's own threads have done what there is to do at this instant, under a
    virtual clock.

    There this process would otherwise keep the processor, at one instant, before they activate a
    port whose carrier has come; and they activate 200 ports at once, and then no more than 100 a
    second.
    """
    if is_virtual():
        sleep(1e-6)


def step_wall(by_s: float) -> None:
    """Set this machine's wall clock on by so much, or back; PermissionError if only others may."""
    time.clock_settime(time.CLOCK_REALTIME, wall() + by_s)


def use(clock: Clock) -> None:
    """Let this module's functions be those of `clock` from now on, for the whole process."""
    global monotonic, monotonic_ns, wall, wall_ns, sleep
    monotonic, monotonic_ns = clock.monotonic, clock.monotonic_ns
    wall, wall_ns, sleep = clock.wall, clock.wall_ns, clock.sleep


def current() -> Clock:
    """The clock in use."""
    return Clock(monotonic, monotonic_ns, wall, wall_ns, sleep)


@contextmanager
def using(clock: Clock) -> Iterator[None]:
    """`clock` is in use, and afterwards the one that was before."""
    before = current()
    use(clock)
    try:
        yield
    finally:
        use(before)


class Times(ctypes.Structure):
    """struct itimerspec of 64-bit machines: when again (never), and when."""

    _fields_ = [(name, ctypes.c_long) for name in ("again_s", "again_ns", "at_s", "at_ns")]


class Timer:
    """A descriptor, readable from the moment on that was set last, exact to the nanosecond
    (timerfd_create(2)).
    """

    def __init__(self) -> None:
        self._fd = _checked(libc.timerfd_create(MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))

    def fileno(self) -> int:
        """The descriptor that becomes readable."""
        return self._fd

    def set(self, at_s: float) -> None:
        """Be readable from `at_s` of the monotonic clock on, and not before."""
        at_ns = max(1, round(at_s * 1e9))  # 0 would be never
        times = Times(0, 0, *divmod(at_ns, 1_000_000_000))
        _checked(libc.timerfd_settime(self._fd, ABSOLUTE, ctypes.byref(times), None))

    def close(self) -> None:
        """Let go of it."""
        os.close(self._fd)


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def local_time(wall_s: float) -> str:
    """`wall_s` in this machine's time zone, to the microsecond: 2024-05-17T09:30:00.000250."""
    micros = round(wall_s * 1e6)
    return (
        time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(micros // 1_000_000))
        + f".{micros % 1_000_000:06}"
    )


def utc_time(wall_s: float) -> str:
    """`wall_s` in universal time, to the second: 2024-05-17T07:30:00+00:00."""
    return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(wall_s))


def wait_until(
    what: str, answer: Callable[[], T], *, timeout_s: float = 30.0, every_s: float = 0.005
) -> T:
    """Return the first true `answer()`.

    TimeoutError tells `what` was awaited and the last answer.
    """
    end_s = monotonic() + timeout_s
    while not (value := answer()):
        if monotonic() > end_s:
            raise TimeoutError(f"{what}: still {value!r} after {timeout_s:g} s")
        sleep(every_s)
    return value
