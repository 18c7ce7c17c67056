"""pyroute2 in a network namespace, and its reading of our messages.

Importing pyroute2 takes 0.13 s and 20 MB, so this module imports it when it is used; no daemon
uses it.
"""

from __future__ import annotations

import os
import socket
from functools import cached_property
from typing import TYPE_CHECKING, Any

from weft.testbed.linux import netlink, netns
from weft.testbed.linux.netlink import NetlinkMessage
from weft.testbed.linux.process import Closing

if TYPE_CHECKING:
    from pyroute2 import IPRoute


class Namespace(Closing):
    """The network namespace called `name`.

    ip: pyroute2's IPRoute in it, opened at first use, for the thread that opened it.  To receive
        events, call its bind() before all else.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @cached_property
    def ip(self) -> IPRoute:
        fd = os.open(netns.NAMES / self.name, os.O_RDONLY)
        try:
            return iproute(fd)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Close the IPRoute; the namespace stays."""
        if "ip" in self.__dict__:
            self.ip.close()
            del self.ip


def iproute(fd: int) -> IPRoute:
    """Return pyroute2's IPRoute in the namespace of descriptor `fd`; its errors quote the kernel.

    IPRoute(netns=...) would start a process to open its socket, and another socket in the
    namespace of each further thread; this one refuses other threads.
    """
    from pyroute2 import IPRoute

    with netns.inside(fd):
        # asyncio takes no raw socket
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
        opened = socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE)
    opened.setsockopt(netlink.SOL_NETLINK, netlink.NETLINK_EXT_ACK, 1)
    return IPRoute(use_socket=opened)


def encoded(kind: str, command: str, /, **parameters: Any) -> NetlinkMessage:
    """Return the change that IPRoute's method `kind` would make, for a batch in many namespaces.

    An error quotes it in pyroute2's words: ip.rule("add", priority=100, table=254).
    """
    from pyroute2 import IPBatch

    batch = IPBatch()
    try:
        getattr(batch, kind)(command, **parameters)
        packed = bytes(batch.batch)
    finally:
        batch.close()
    _, number, flags, _, _ = netlink.HEADER.unpack_from(packed)
    words = ", ".join(
        [f'"{command}"', *(f"{name}={value!r}" for name, value in parameters.items())]
    )
    return NetlinkMessage(number, flags, packed[netlink.HEADER.size :], f"ip.{kind}({words})")


def decoded(message: NetlinkMessage) -> Any:
    """Return a message of the family route as pyroute2 decodes it."""
    from pyroute2.netlink.rtnl.marshal import MarshalRtnl

    size = netlink.HEADER.size + len(message.body)
    flags = netlink.NLM_F_REQUEST | message.flags
    header = netlink.HEADER.pack(size, message.kind, flags, 1, 0)
    (only,) = MarshalRtnl().parse(header + message.body)
    return only
