"""What of root's rights a process keeps (capabilities(7)).

A daemon has opened its sockets, its maps and its files before it hears its first packet.  From then
on it sets routes in its node's namespace, which takes CAP_NET_ADMIN; what it has open it uses by
descriptor.  The rest it gives up, for itself and for whatever it would start: it can no longer
enter namespaces or mount anything, load programs or kernel modules, trace processes, change users,
read what other users keep to themselves, nor, unless it is a switch's, open raw sockets.

Before Linux 5.19 a process needs CAP_BPF even for maps that it has open, where others may not use
bpf(), as on Debian and Ubuntu; so it is kept there.

No system call is closed to it (seccomp): which ones an interpreter needs depends on its version and
its C library.
"""

from __future__ import annotations

import ctypes
import os
import re

from weft.testbed.linux import netns

CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF = 12, 13, 39
# the first Linux that asks no more of who has a map open (c8644cd0efe7)
OPEN_MAPS_ARE_FREE = (5, 19)
# of the structures: effective, permitted and inheritable ones, 32 capabilities, and 32 more
VERSION_3 = 0x20080522
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 24, 38, 47, 4
MOST_CAPABILITIES = 64
PERMITTED, SETS = 1, 3  # the place of one among three


def of_maps(release: str) -> set[int]:
    """The capabilities that using maps takes which are open already, under the Linux `release`."""
    numbers = re.match(r"(\d+)\.(\d+)", release)
    known = numbers is not None and (int(numbers[1]), int(numbers[2])) >= OPEN_MAPS_ARE_FREE
    return set() if known else {CAP_BPF}


def keep_only(*kept: int) -> None:
    """Give up for good every capability of this process that is not `kept`.

    One that it does not have it does not get.

    OSError if the kernel refuses.
    """
    # what a program could get that it starts
    for number in {*range(MOST_CAPABILITIES)}.difference(kept):
        if netns.libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0):
            break  # there are no more, or it may not: with what follows, no program gets any
    _done(
        netns.libc.prctl(PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0),
        "prctl PR_SET_NO_NEW_PRIVS",
    )
    clear = ctypes.c_ulong(PR_CAP_AMBIENT_CLEAR_ALL)
    _done(netns.libc.prctl(PR_CAP_AMBIENT, clear, 0, 0, 0), "prctl PR_CAP_AMBIENT")
    header, sets = (ctypes.c_uint32 * 2)(VERSION_3, 0), (ctypes.c_uint32 * (2 * SETS))()
    _done(netns.libc.capget(header, sets), "capget")
    for half in range(2):
        had = sets[SETS * half + PERMITTED]
        remaining = had & sum(1 << number % 32 for number in {*kept} if number // 32 == half)
        sets[SETS * half : SETS * half + SETS] = [remaining, remaining, 0]
    _done(netns.libc.capset(header, sets), "capset")


def _done(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
