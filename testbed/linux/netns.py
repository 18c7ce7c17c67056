"""Network namespaces: making many at once, entering them, waiting until they are gone.

A namespace takes 0.4-1.1 ms: unshare() in a worker thread, keep the descriptor of its ns/net,
bind-mount only the name.  `ip netns add` and pyroute2 fork or exec for each, which takes 20 ms.

The kernel looks for a name under /proc/sys/net among those of all namespaces that were looked up in
the same proc file system.  A private proc file system, replaced after a few namespaces, keeps that
list short, which saves a third of the time in which a thousand nodes come up.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from weft.testbed.linux import interface, netlink
from weft.testbed.linux.process import check
from weft.testbed.linux.process import libc as libc

NAMES = Path("/run/netns")  # where `ip netns` looks
OWN = "/proc/thread-self/ns/net"
CLONE_NEWNET = 0x40000000
WORKERS = 2  # more would wait for the kernel's lock on interfaces (RTNL)
SYSCTLS = "/proc/sys/net"
SYSCTL_NAMESPACES = 32  # namespaces for each proc file system
FSOPEN_CLOEXEC, FSMOUNT_CLOEXEC, FSCONFIG_CMD_CREATE = 1, 1, 6
MS_BIND, MS_REC, MS_SHARED, MNT_DETACH = 0x1000, 0x4000, 0x100000, 2

T = TypeVar("T")


def mount(source: str, target: str, flags: int) -> None:
    """Mount without a file system type; raise OSError if that fails."""
    check(
        libc.mount(source.encode(), target.encode(), None, flags, None), f"mount {source} {target}"
    )


def enter(fd: int) -> None:
    """Move the calling thread into the namespace of descriptor `fd`."""
    check(libc.setns(fd, CLONE_NEWNET), f"setns {fd}")


@contextmanager
def inside(fd: int) -> Iterator[None]:
    """Move the calling thread into the namespace of `fd` for the `with` block.

    Sockets opened in the block stay in that namespace.
    """
    home = os.open(OWN, os.O_RDONLY)
    try:
        enter(fd)
        try:
            yield
        finally:
            enter(home)
    finally:
        os.close(home)


def in_threads(functions: Sequence[Callable[[], T]]) -> list[T]:
    """Run each function in a thread of its own, which may change its namespace.

    Returns:
        Their results, in order.

    Raises:
        BaseException: the first of their errors, after all have ended.
    """
    # not above: each daemon forked with this module loaded takes 0.4 MB more
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
    """Run `function` in a thread of its own, which may change its namespace; return its result."""
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
    names: Sequence[str], sysctls: Callable[[int], Mapping[str, str]], created: list[Netns]
) -> None:
    """Create a namespace of each name.

    Args:
        names: in order.
        sysctls: returns the settings of a position, by path under /proc/sys/net.
        created: gets the namespaces; after an error those that exist, in any order.

    Raises:
        OSError: a name is taken, or the kernel refuses a setting.
    """
    NAMES.mkdir(mode=0o755, parents=True, exist_ok=True)
    _share(NAMES)
    _reserve(names)
    spaces: dict[int, Netns] = {}

    def work(start: int) -> None:
        defaults: dict[str, str] = {}
        with closing(Sysctls()) as settings:
            for i in range(start, len(names), WORKERS):
                check(libc.unshare(CLONE_NEWNET), "unshare")
                fd = os.open(OWN, os.O_RDONLY)
                spaces[i] = Netns(names[i], fd, netlink.Socket())
                settings.enter()
                settings.set(sysctls(i), defaults)
                mount(OWN, str(NAMES / names[i]), MS_BIND)

    try:
        in_threads([partial(work, start) for start in range(WORKERS)])
    finally:
        created += [spaces[i] for i in sorted(spaces)]


def _reserve(names: Sequence[str]) -> None:
    """Make the empty files on which namespaces are mounted; raise FileExistsError for a taken name.

    They are links to the first: on a disk, a new file takes 0.1-0.4 ms, a link 0.003.  A mount
    belongs to the name, not to the file.
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
    """Settings of the calling thread's namespace, in a private proc file system if possible."""

    def __init__(self) -> None:
        self._folder = -1
        self._entered = 0

    def enter(self) -> None:
        """Prepare for a namespace that the thread has just entered."""
        if self._entered % SYSCTL_NAMESPACES == 0:
            self.close()
            self._folder = own_sysctls()
        self._entered += 1

    def set(self, values: Mapping[str, str], defaults: dict[str, str]) -> None:
        """Write the values of a new namespace that differ from `defaults`, which gains new ones."""
        for path, value in values.items():
            if path not in defaults:
                defaults[path] = self.read(path)
            if defaults[path] != value:
                write_sysctl(path, value, self._folder)

    def read(self, path: str) -> str:
        """Return the value of `path`, below /proc/sys/net; raise OSError if there is none."""
        fd = os.open(path, os.O_RDONLY, dir_fd=self._folder)
        try:
            return os.read(fd, 4096).decode().strip()
        finally:
            os.close(fd)

    def close(self) -> None:
        if self._folder >= 0:
            os.close(self._folder)
        self._folder = -1


def own_sysctls() -> int:
    """Return a descriptor of sys/net in a private proc file system, else of SYSCTLS.

    The file system ends when the descriptor is closed.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY
    mounted = _mounted_proc()
    if mounted < 0:
        return os.open(SYSCTLS, flags)
    try:
        return os.open("sys/net", flags, dir_fd=mounted)
    finally:
        os.close(mounted)


def _mounted_proc() -> int:
    """Return a descriptor of a new proc file system, mounted nowhere; -1 if there is none."""
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


def write_sysctl(path: str, value: str, folder: int | None = None) -> None:
    """Set /proc/sys/net/`path` of the thread's namespace; raise OSError with its name.

    folder: descriptor of sys/net in another proc file system.
    """
    file = f"{SYSCTLS}/{path}" if folder is None else path
    try:
        fd = os.open(file, os.O_WRONLY, dir_fd=folder)
        try:
            os.write(fd, value.encode())
        finally:
            os.close(fd)
    except OSError as error:
        raise OSError(
            error.errno, f"sysctl net.{path.replace('/', '.')}={value}: {error.strerror}"
        ) from None


def _share(directory: Path) -> None:
    """Make `directory` a shared mount as `ip netns add` does, for every mount namespace."""
    with open("/proc/self/mountinfo") as mounts:
        if any(line.split()[4] == str(directory) for line in mounts):
            return
    mount(str(directory), str(directory), MS_BIND | MS_REC)
    mount("none", str(directory), MS_SHARED | MS_REC)


def forget(names: Iterable[str]) -> None:
    """Remove the names, also those of an unfinished create().

    A namespace ends when no process and no descriptor holds it.
    """
    for name in names:
        path = NAMES / name
        with suppress(FileNotFoundError):
            with suppress(OSError):  # EINVAL: the file has no mount yet
                check(libc.umount2(os.fsencode(path), MNT_DETACH), f"umount {path}")
            path.unlink()


def wait_until_gone(timeout_s: float = 60.0) -> None:
    """Return when the kernel has destroyed every namespace that was released before the call.

    It destroys namespaces in the background, in the order of their release.  So this releases one
    more, with a veth that leads into it; when the veth is deleted, all earlier ones are gone.

    For each bridge that it deletes the kernel waits for RCU callbacks (br_multicast_dev_del() in
    net/bridge/br_multicast.c), and for a grace period at each of its ports, one after the other.
    So a DCell, whose crossbars are bridges, takes several times as long as a fat-tree.

    Raises:
        TimeoutError: that took too long.
    """

    def work() -> None:
        check(libc.unshare(CLONE_NEWNET), "unshare")
        watcher_fd = os.open(OWN, os.O_RDONLY)
        watcher = netlink.Socket(groups=1)  # RTMGRP_LINK
        watcher.socket.settimeout(timeout_s)
        check(libc.unshare(CLONE_NEWNET), "unshare")
        sentinel = netlink.Socket()
        end = interface.VethSide(interface.IFINFO.pack(0, 0, 0, 0, 0), "")
        sentinel.request([interface.veth(end, end, watcher_fd, "WATCHER")])
        sentinel.close()
        os.close(watcher_fd)
        enter_fd = os.open(f"/proc/{os.getpid()}/ns/net", os.O_RDONLY)
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
