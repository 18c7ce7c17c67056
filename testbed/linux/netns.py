"""Network namespaces: making many at once, entering them, waiting until they are gone.

A namespace costs 0.4-1.1 ms this way: unshare() in a worker thread, keep the descriptor of its
ns/net, bind-mount only the name.  (`ip netns add` and pyroute2 fork or exec for each: 20 ms.)

Every namespace has settings of its own under /proc/sys/net.  The kernel keeps the names that have
been looked up in one proc file system, of all namespaces together, in one list for each name:
/proc/sys/net/ipv4 is as many names as namespaces have been asked for it, and each new one is looked
for among all of them, twice.  So who sets up many namespaces looks into a proc file system that is
mounted nowhere, and takes another one after a few: of the time in which a thousand nodes come up,
that saves a third.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from weft.testbed.linux import netlink

NAMES = Path("/run/netns")  # where `ip netns` looks
OWN = "/proc/thread-self/ns/net"
CLONE_NEWNET = 0x40000000
WORKERS = 2  # more would wait for the kernel's lock on interfaces (RTNL)
SYSCTLS = "/proc/sys/net"
SYSCTL_NAMESPACES = 32  # that are looked at in one proc file system
FSOPEN_CLOEXEC, FSMOUNT_CLOEXEC, FSCONFIG_CMD_CREATE = 1, 1, 6
MS_BIND, MS_REC, MS_SHARED, MNT_DETACH = 0x1000, 0x4000, 0x100000, 2

T = TypeVar("T")
libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def mount(source: str, target: str, flags: int) -> None:
    """mount(2) without a file system type; OSError if it fails."""
    _check(
        libc.mount(source.encode(), target.encode(), None, flags, None), f"mount {source} {target}"
    )


def unmount(target: str) -> None:
    """Detach whatever is mounted at `target`; OSError if nothing is."""
    _check(libc.umount2(target.encode(), MNT_DETACH), f"umount {target}")


def enter(fd: int) -> None:
    """Move the calling thread into the namespace of descriptor `fd`."""
    _check(libc.setns(fd, CLONE_NEWNET), f"setns {fd}")


@contextmanager
def inside(fd: int) -> Iterator[None]:
    """Move the calling thread into the namespace of `fd` for the `with` block.

    Sockets opened in the block stay in that namespace.
    """
    home = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        enter(fd)
        try:
            yield
        finally:
            enter(home)
    finally:
        os.close(home)


def in_threads(functions: Sequence[Callable[[], T]]) -> list[T]:
    """Run each function in a thread of its own, whose namespace may change; return their results.

    The first of their errors is raised after all have ended.
    """
    # only here: a process forked with it loaded writes to 0.4 MB at once, and daemons are many
    import threading

    results: dict[int, T] = {}
    raised: list[BaseException] = []

    def work(i: int) -> None:
        try:
            results[i] = functions[i]()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]
    return [results[i] for i in range(len(functions))]


def in_thread(function: Callable[[], T]) -> T:
    """Run `function` in a thread of its own, whose namespace may change; return its result."""
    return in_threads([function])[0]


@dataclass(frozen=True)
class Netns:
    """A namespace: its name, a descriptor that keeps it alive, a netlink socket in it."""

    name: str
    fd: int
    netlink: netlink.Socket

    def close(self) -> None:
        self.netlink.close()
        os.close(self.fd)


def create(
    names: Sequence[str], sysctls: Callable[[int], Mapping[str, str]], made: list[Netns]
) -> None:
    """Append to `made` a namespace of each name, in order, with `sysctls`(position), paths under
    /proc/sys/net, set.

    On OSError, for a name that is taken or a sysctl that is refused, `made` has what was made, in
    any order.
    """
    NAMES.mkdir(mode=0o755, parents=True, exist_ok=True)
    _share(NAMES)
    _reserve(names)
    spaces: dict[int, Netns] = {}

    def work(start: int) -> None:
        defaults: dict[str, str] = {}
        with closing(Sysctls()) as own:
            for i in range(start, len(names), WORKERS):
                _check(libc.unshare(CLONE_NEWNET), "unshare")
                fd = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
                spaces[i] = Netns(names[i], fd, netlink.Socket())
                own.enter()
                _set_sysctls(own, sysctls(i), defaults)
                mount(OWN, str(NAMES / names[i]), MS_BIND)

    try:
        in_threads([partial(work, start) for start in range(WORKERS)])
    finally:
        made += [spaces[i] for i in sorted(spaces)]


def _set_sysctls(own: Sysctls, values: Mapping[str, str], defaults: dict[str, str]) -> None:
    """Write the values of a new namespace that differ from `defaults`, which all begin with."""
    for path, value in values.items():
        if path not in defaults:
            defaults[path] = own.read(path)
        if defaults[path] != value:
            own.write(path, value)


def _reserve(names: Sequence[str]) -> None:
    """Make the empty files on which namespaces are mounted.

    FileExistsError for a name that is taken.

    They are links to the first: where names lie on a disk, a new file costs 0.1-0.4 ms, a link
    0.003.  A mount belongs to the name, not to the file.
    """
    for name in names[:1]:
        os.close(os.open(NAMES / name, os.O_CREAT | os.O_EXCL | os.O_RDONLY, 0))
    for name in names[1:]:
        try:
            os.link(NAMES / names[0], NAMES / name)
        except FileExistsError:
            raise
        except OSError:  # a file system without links, or with too few
            os.close(os.open(NAMES / name, os.O_CREAT | os.O_EXCL | os.O_RDONLY, 0))


class Sysctls:
    """Settings of the calling thread's namespace, in a private proc file system.

    If that cannot be mounted, the machine's /proc is used.
    """

    def __init__(self) -> None:
        self._folder = -1
        self._entered = 0

    def enter(self) -> None:
        """The thread is in a namespace that has not been asked for anything yet."""
        if self._entered % SYSCTL_NAMESPACES == 0:
            self.close()
            self._folder = own_sysctls()
        self._entered += 1

    def read(self, path: str) -> str:
        """Return the value of `path`, below /proc/sys/net; OSError if there is none."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)
        try:
            return os.read(fd, 4096).decode().strip()
        finally:
            os.close(fd)

    def write(self, path: str, value: str) -> None:
        """As write_sysctl()."""
        _write(path, value, path, self._folder)

    def close(self) -> None:
        if self._folder >= 0:
            os.close(self._folder)
        self._folder = -1


def own_sysctls() -> int:
    """A descriptor of sys/net in a proc file system of our own, which is gone when it is closed; of
    SYSCTLS where there can be none.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    mounted = _mounted_proc()
    if mounted < 0:
        return os.open(SYSCTLS, flags)
    try:
        return os.open("sys/net", flags, dir_fd=mounted)
    finally:
        os.close(mounted)


def _mounted_proc() -> int:
    """A descriptor of a new proc file system, mounted nowhere.

    -1 if the C library or the kernel has none to give.
    """
    try:
        context = libc.fsopen(b"proc", FSOPEN_CLOEXEC)
    except AttributeError:  # glibc before 2.36
        return -1
    if context < 0:
        return -1
    try:
        if libc.fsconfig(context, FSCONFIG_CMD_CREATE, None, None, 0):
            return -1
        return int(libc.fsmount(context, FSMOUNT_CLOEXEC, 0))
    finally:
        os.close(context)


def write_sysctl(path: str, value: str) -> None:
    """Set /proc/sys/net/`path` of the calling thread's namespace.

    OSError with its name if the kernel refuses.
    """
    _write(path, value, str(Path(SYSCTLS, path)), None)


def _write(path: str, value: str, at: str, folder: int | None) -> None:
    try:
        fd = os.open(at, os.O_WRONLY | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.write(fd, value.encode())
        finally:
            os.close(fd)
    except OSError as error:
        raise OSError(
            error.errno, f"sysctl net.{path.replace('/', '.')}={value}: {error.strerror}"
        ) from None


def _share(directory: Path) -> None:
    """Make `directory` a shared mount, as `ip netns add` does, so that names appear in every mount
    namespace.
    """
    with open("/proc/self/mountinfo") as mounts:
        if any(line.split()[4] == str(directory) for line in mounts):
            return
    mount(str(directory), str(directory), MS_BIND | MS_REC)
    mount("none", str(directory), MS_SHARED | MS_REC)


def forget(names: Iterable[str]) -> None:
    """Remove the names, also half-made ones.

    A namespace ends when no process and no descriptor holds it.
    """
    for name in names:
        path = NAMES / name
        with suppress(FileNotFoundError):
            with suppress(OSError):  # EINVAL: died between making the file and mounting on it
                unmount(str(path))
            path.unlink()


def wait_until_gone(timeout_s: float = 60.0) -> None:
    """Return when the kernel has destroyed every namespace that was released before the call.

    It destroys namespaces in the background, in the order of their release.  So one more is made
    and released, with a veth that leads into it: when that is deleted, all namespaces before it are
    gone.  TimeoutError if that takes too long.
    """

    def work() -> None:
        _check(libc.unshare(CLONE_NEWNET), "unshare")
        watcher_fd = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
        watcher = netlink.Socket(groups=1)  # RTMGRP_LINK
        watcher.socket.settimeout(timeout_s)
        _check(libc.unshare(CLONE_NEWNET), "unshare")
        sentinel = netlink.Socket()
        sentinel.request([_veth_into(watcher_fd)])
        sentinel.close()
        os.close(watcher_fd)
        enter_fd = os.open(f"/proc/{os.getpid()}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        enter(enter_fd)  # leave the sentinel namespace, which releases it
        os.close(enter_fd)
        try:
            while not any(
                kind == netlink.RTM_DELLINK for kind, *_ in netlink.split(watcher.receive())
            ):
                pass
        except TimeoutError:
            raise TimeoutError(f"namespaces: not all gone after {timeout_s} s") from None
        finally:
            watcher.close()

    in_thread(work)


def _veth_into(fd: int) -> netlink.NetlinkMessage:
    """A veth whose peer is in the namespace of `fd`."""
    peer = struct.pack("=BxHiII", 0, 0, 0, 0, 0) + netlink.u32(28, fd)  # IFLA_NET_NS_FD
    info = netlink.nested(
        18, netlink.text(1, "veth"), netlink.nested(2, netlink.attribute(1, peer))
    )
    body = struct.pack("=BxHiII", 0, 0, 0, 0, 0) + info
    return netlink.NetlinkMessage(
        netlink.RTM_NEWLINK, netlink.CREATE, body, "ip link add type veth peer netns WATCHER"
    )
