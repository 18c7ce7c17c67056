"""TCP at a network's hosts: its sysctls, and connections with both ends in this process."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from pathlib import Path

from weft.testbed.linux import netns
from weft.testbed.runs.network_handle import NetworkHandle
from weft.topologies.core.address import dotted


def tune(net: NetworkHandle, sysctls: Mapping[str, str]) -> None:
    """Set sysctls, by path under /proc/sys/net, at every host.

    Raises:
        OSError: the kernel refused one; the message has its name.
    """

    def work() -> None:
        for host in range(net.topology.servers):
            netns.enter(net.netns(host))
            for path, value in sysctls.items():
                netns.write_sysctl(path, value)

    netns.in_thread(work)


def tcp_sysctls(net: NetworkHandle, host: int = 0) -> dict[str, str]:
    """Return every TCP sysctl of a host, by name."""

    def work() -> dict[str, str]:
        netns.enter(net.netns(host))
        paths = sorted(Path("/proc/sys/net/ipv4").glob("tcp_*"))
        readable = (
            path for path in paths if os.access(path, os.R_OK) and path.name != "tcp_fastopen_key"
        )
        return {path.name: " ".join(path.read_text().split()) for path in readable}

    return netns.in_thread(work)


def counters(net: NetworkHandle, names: Collection[str]) -> dict[str, int]:
    """Return counters of the kernel's TCP (TcpExt of /proc/net/netstat), summed over all hosts.

    Raises:
        ValueError: the kernel has no such counter.
    """

    def work() -> list[dict[str, int]]:
        tables = []
        for host in range(net.topology.servers):
            netns.enter(net.netns(host))
            tables.append(parse_netstat(NETSTAT.read_text()))
        return tables

    tables = netns.in_thread(work)
    if missing := sorted(set(names) - tables[0].keys()):
        raise ValueError(f"this kernel does not count {', '.join(missing)} of TCP")
    return {name: sum(table[name] for table in tables) for name in names}


def parse_netstat(text: str) -> dict[str, int]:
    """Return the counters of TcpExt in the text of /proc/net/netstat, by name."""
    names, values = (line.split()[1:] for line in text.splitlines() if line.startswith("TcpExt:"))
    return dict(zip(names, map(int, values), strict=True))


NETSTAT = Path("/proc/thread-self/net/netstat")
CONNECT_S = 10.0
UNSENT_BYTES = 1 << 17  # unsent bytes that a sender keeps in the kernel
TCP_NOTSENT_LOWAT = 25


def connect(
    net: NetworkHandle, src: int, dst: int, congestion_control: str
) -> tuple[socket.socket, socket.socket]:
    """Return sender and receiver of a new connection from host `src` to host `dst`.

    They do not block.

    Raises:
        OSError: the connection failed; the message has both names.
    """
    naming = net.topology.naming
    with ExitStack() as stack:
        listener = stack.enter_context(_socket(net, dst, congestion_control))
        listener.bind((dotted(naming.address(dst)), 0))
        listener.listen(1)
        sender = stack.enter_context(_socket(net, src, congestion_control))
        sender.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        try:
            sender.connect(listener.getsockname())
            receiver, _ = listener.accept()
        except OSError as error:
            names = f"{naming.name(src)} -> {naming.name(dst)}"
            raise OSError(error.errno, f"TCP {names}: {error.strerror or error}") from None
        listener.close()
        stack.pop_all()
    for end in (sender, receiver):
        end.setblocking(False)
    return sender, receiver


def _socket(net: NetworkHandle, host: int, congestion_control: str) -> socket.socket:
    """Return a new socket of `host`.

    A listener has the congestion control, too: DCTCP answers marks as a receiver.
    """
    with netns.inside(net.netns(host)):
        tcp_socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    tcp_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion_control.encode())
    tcp_socket.settimeout(CONNECT_S)
    return tcp_socket


def raise_error(end: socket.socket) -> None:
    """Raise the error of a socket, if it has one."""
    code = end.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))
