"""Multipath TCP of Linux at a network's hosts: several subflows, which hashing spreads over paths.

A host has one address, so the subflows differ by port: the receiver announces ports beside the one
it listens at, and the sender's kernel joins each (RFC 8684, ADD_ADDR with a port).  `fullmesh`
would need several addresses.
"""

from __future__ import annotations

import ctypes
import errno
import socket
import struct
import subprocess
from collections.abc import Collection

from weft.testbed.linux.netns import libc
from weft.testbed.runs.network_handle import NetworkHandle
from weft.topologies.core.address import dotted
from weft.topologies.core.grammar import integer, parse

PROTOCOL = 262  # IPPROTO_MPTCP
SOL_MPTCP, MPTCP_TCPINFO = 284, 2
MOST_SUBFLOWS = 8  # limit of Linux for one connection
HEADER = struct.Struct("=4I")  # struct mptcp_subflow_data
TCP_INFO_BYTES = 256


def subflows(transport: str) -> int:
    """Return the number of subflows by `transport`, tcp (0) or mptcp:subflows=4.

    Raises:
        ValueError: another transport.
    """
    name, options = parse(transport)
    if name == "tcp" and not options:
        return 0
    if name != "mptcp" or set(options) != {"subflows"}:
        raise ValueError(f"transport must be tcp or mptcp:subflows=4, got {transport}")
    return integer("mptcp", "subflows", options["subflows"], least=1, most=MOST_SUBFLOWS)


def check() -> None:
    """Raise ValueError if this kernel has no multipath TCP."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, PROTOCOL).close()
    except OSError as error:
        if error.errno not in (errno.EPROTONOSUPPORT, errno.ENOPROTOOPT):
            raise
        raise ValueError(
            "this kernel has no multipath TCP (CONFIG_MPTCP); take transport=tcp"
        ) from None


def prepare(net: NetworkHandle, receivers: Collection[int], count: int, port: int) -> None:
    """Let connections to `port` of the hosts `receivers` have `count` subflows.

    Further subflows go to the ports after `port`.

    Raises:
        OSError: `ip mptcp` failed; the message is its own.
    """
    for host in range(net.topology.servers):
        commands = [
            "mptcp endpoint flush",
            f"mptcp limits set subflows {count - 1} add_addr_accepted {count - 1}",
        ]
        if host in receivers:
            address = dotted(net.topology.naming.address(host))
            commands += [
                f"mptcp endpoint add {address} port {port + i} signal" for i in range(1, count)
            ]
        name = net.identity.namespace(net.topology.naming.name(host))
        done = subprocess.run(
            ["ip", "-n", name, "-batch", "-"],
            input="\n".join(commands),
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise OSError(
                f"multipath TCP at {net.topology.naming.name(host)}: {done.stderr.strip()}"
            )


def forget(net: NetworkHandle) -> None:
    """Undo prepare(): hosts announce no more ports."""
    for host in range(net.topology.servers):
        name = net.identity.namespace(net.topology.naming.name(host))
        subprocess.run(
            ["ip", "-n", name, "mptcp", "endpoint", "flush"], check=True, capture_output=True
        )


def subflow_infos(sender: socket.socket) -> list[bytes]:
    """Return a struct tcp_info of each present subflow of `sender`."""
    request = HEADER.pack(HEADER.size, 0, 0, TCP_INFO_BYTES)
    buffer = ctypes.create_string_buffer(request, HEADER.size + MOST_SUBFLOWS * TCP_INFO_BYTES)
    size = ctypes.c_uint32(len(buffer))
    if libc.getsockopt(sender.fileno(), SOL_MPTCP, MPTCP_TCPINFO, buffer, ctypes.byref(size)):
        return []  # it fell back to plain TCP, or is closed
    _, count, kernel_bytes, _ = HEADER.unpack_from(buffer.raw)
    # a kernel whose structure is shorter leaves no room between them
    step = min(kernel_bytes, TCP_INFO_BYTES)
    starts = range(HEADER.size, HEADER.size + count * step, step)
    return [buffer.raw[start : start + step] for start in starts]
