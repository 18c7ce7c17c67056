"""Rights, limits and signals of this process (capabilities(7)), system calls that Python lacks, and
the base of what a `with` block closes.

A daemon opens its sockets, maps and files before it reads its first packet.  Later it sets routes
in its node's namespace, which needs CAP_NET_ADMIN.  It gives up all other rights for itself and for
processes that it would start: it can no longer enter namespaces, mount, load programs or modules,
trace processes, change users, read private files, nor, except for a switch, open raw sockets.

Before Linux 5.19 a process needs CAP_BPF even for open maps on systems without unprivileged bpf(),
such as Debian and Ubuntu.  No system call is closed (seccomp), because the calls that an
interpreter needs depend on its version and C library.
"""

from __future__ import annotations

import ctypes
import os
import re
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self


class Closing:
    """Base of classes whose close() ends a `with` block."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


libc = ctypes.CDLL(None, use_errno=True)
SPARE_DESCRIPTORS = 50  # of allow_more_descriptors()
CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF = 12, 13, 39
# the first Linux without a check for open maps (c8644cd0efe7)
OPEN_MAPS_ARE_FREE = (5, 19)
# format: effective, permitted and inheritable sets of 32 capabilities, and of 32 more
VERSION_3 = 0x20080522
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 24, 38, 47, 4
MOST_CAPABILITIES = 64
PERMITTED, SETS = 1, 3  # position of the permitted set, number of sets


def check(result: int, what: str) -> int:
    """Return `result`; raise OSError, which begins with `what`, if it is negative."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def need_root() -> None:
    """Raise ValueError unless this process may make namespaces."""
    if os.geteuid():
        raise ValueError(
            "networks need root: use sudo, or `weft uml -- COMMAND` for a kernel of your own"
        )


def allow_descriptors(count: int) -> None:
    """Let this process have `count` files open.

    Raises:
        ValueError: the system allows fewer; as many as it allows may be open now.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= count:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, max(hard, count)))
    except ValueError:  # not root, or root without CAP_SYS_RESOURCE
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        raise ValueError(
            f"this network needs {count} open files and the limit is {hard}; "
            "raise it with ulimit -n"
        ) from None


def allow_more_descriptors(count: int) -> None:
    """Let this process open `count` more files and a few others; see allow_descriptors()."""
    allow_descriptors(len(os.listdir("/proc/self/fd")) + count + SPARE_DESCRIPTORS)


def map_capabilities(release: str) -> set[int]:
    """Return the capabilities that a process needs for open maps under the Linux `release`."""
    numbers = re.match(r"(\d+)\.(\d+)", release)
    known = numbers is not None and (int(numbers[1]), int(numbers[2])) >= OPEN_MAPS_ARE_FREE
    return set() if known else {CAP_BPF}


def keep_only(*capabilities: int) -> None:
    """Give up for good every capability of this process but these; raise OSError on refusal."""
    # those that programs which it starts could get
    for number in {*range(MOST_CAPABILITIES)}.difference(capabilities):
        if libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0):
            break  # no more exist, or not permitted; the calls below suffice then
    check(
        libc.prctl(PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0),
        "prctl PR_SET_NO_NEW_PRIVS",
    )
    clear = ctypes.c_ulong(PR_CAP_AMBIENT_CLEAR_ALL)
    check(libc.prctl(PR_CAP_AMBIENT, clear, 0, 0, 0), "prctl PR_CAP_AMBIENT")
    header, sets = (ctypes.c_uint32 * 2)(VERSION_3, 0), (ctypes.c_uint32 * (2 * SETS))()
    check(libc.capget(header, sets), "capget")
    for half in range(2):
        had = sets[SETS * half + PERMITTED]
        remaining = had & sum(
            1 << number % 32 for number in {*capabilities} if number // 32 == half
        )
        sets[SETS * half : SETS * half + SETS] = [remaining, remaining, 0]
    check(libc.capset(header, sets), "capset")


STOPS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Deliver SIGINT and SIGTERM after the block.

    Handlers run in the main thread, whichever thread the system chose, so that the handlers are
    replaced, and not the thread's mask.  Other threads are not interrupted anyway.
    """
    import threading  # not for daemons, whose memory it would cost

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    # None: a handler that Python did not install, and cannot install again
    previous = {number: signal.getsignal(number) for number in STOPS}
    replaced = {number: handler for number, handler in previous.items() if handler is not None}
    for number in replaced:
        signal.signal(number, lambda number, frame: arrived.append(number))
    try:
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)
        for arrival in dict.fromkeys(arrived):
            signal.raise_signal(arrival)


def interrupt_behind(error: BaseException) -> BaseException | None:
    """Return the interrupt during whose clean-up `error` was raised, if any."""
    before = error.__context__
    while before and isinstance(before, Exception | SystemExit):  # a package may call sys.exit()
        before = before.__context__
    return before
