"""The clock of testbed/ and experiments/: reading the time, and waiting.

Call the functions as `clock.monotonic()`, so that a test can replace them here.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

from weft.testbed.linux.process import check, libc

T = TypeVar("T")
MONOTONIC = 1  # CLOCK_MONOTONIC
ABSOLUTE = 1  # TFD_TIMER_ABSTIME
HOP_NS = "weft.hop_ns="  # argument of the virtual clock's kernel, which ignores it


# seconds and nanoseconds since a fixed moment, never going back (CLOCK_MONOTONIC)
monotonic = time.monotonic
monotonic_ns = time.monotonic_ns
# seconds and nanoseconds since 1970 (CLOCK_REALTIME, which stamps packets)
wall = time.time
wall_ns = time.time_ns
sleep = time.sleep
cpu_s = time.process_time  # seconds of processor time that this process has used


@cache
def is_virtual() -> bool:
    """Return True if the clock is virtual: computing takes no time, and no timer is late."""
    return any(word.startswith("time-travel") for word in _boot_arguments())


@cache
def calls_cost_nothing() -> bool:
    """Return True if the clock is virtual and system calls take no time, as by default."""
    return is_virtual() and not any(
        word.startswith("time_travel.syscall_ns=") for word in _boot_arguments()
    )


@cache
def hop_ns() -> int:
    """Return the processor time of each packet that a host receives; 0 under the real clock."""
    words = [word for word in _boot_arguments() if word.startswith(HOP_NS)]
    return int(words[0].removeprefix(HOP_NS)) if words else 0


def _boot_arguments() -> list[str]:
    return Path("/proc/cmdline").read_text().split()


def let_kernel_work() -> None:
    """Return when the kernel's own threads have done their work at this instant of a virtual clock.

    Otherwise this process would run before they activate a port whose carrier has come; and they
    activate 200 ports at once, and then at most 100 a second.
    """
    if is_virtual():
        sleep(1e-6)


class Times(ctypes.Structure):
    """Struct itimerspec of 64-bit machines: interval (never), and time."""

    _fields_ = [(name, ctypes.c_long) for name in ("again_s", "again_ns", "at_s", "at_ns")]


class Timer:
    """A descriptor that becomes readable at a set time, exact to the nanosecond (timerfd)."""

    def __init__(self) -> None:
        flags = os.O_NONBLOCK | os.O_CLOEXEC
        self._fd = check(libc.timerfd_create(MONOTONIC, flags), "timerfd")

    def fileno(self) -> int:
        """Return the descriptor that becomes readable."""
        return self._fd

    def set(self, at_s: float) -> None:
        """Set the time of the monotonic clock at which the descriptor becomes readable."""
        at_ns = max(1, round(at_s * 1e9))  # 0 would be never
        times = Times(0, 0, *divmod(at_ns, 1_000_000_000))
        check(libc.timerfd_settime(self._fd, ABSOLUTE, ctypes.byref(times), None), "timerfd")

    def close(self) -> None:
        os.close(self._fd)


def local_time(wall_s: float) -> str:
    """Return `wall_s` in local time to the microsecond, such as 2024-05-17T09:30:00.000250."""
    micros = round(wall_s * 1e6)
    return (
        time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(micros // 1_000_000))
        + f".{micros % 1_000_000:06}"
    )


def utc_time(wall_s: float) -> str:
    """Return `wall_s` in universal time to the second, such as 2024-05-17T07:30:00+00:00."""
    return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(wall_s))


def wait_until(
    what: str, answer: Callable[[], T], *, timeout_s: float = 30.0, every_s: float = 0.005
) -> T:
    """Return the first true result of `answer`.

    Raises:
        TimeoutError: the message has `what` and the last result.
    """
    end_s = monotonic() + timeout_s
    while not (value := answer()):
        if monotonic() > end_s:
            raise TimeoutError(f"{what}: still {value!r} after {timeout_s:g} s")
        sleep(every_s)
    return value
