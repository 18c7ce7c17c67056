"""News of a node's devices: they went up or down, or their carriers."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from weft.testbed.linux import netlink
from weft.testbed.linux.node_interfaces import NodeInterfaces

LINK_GROUP = 1
IFINFO = struct.Struct("=BxHiII")
ALL_LINKS = IFINFO.pack(0, 0, 0, 0, 0)
IFF_UP, IFF_LOWER_UP = 0x1, 0x10000


class LinkChanged(NamedTuple):
    """What became of the device of `port`: whether it is set up, and whether it has a carrier."""

    port: int
    is_set_up: bool
    up: bool


class LinkNews:
    """Tells of the ports of `interfaces`; `requests` is a socket in its namespace, which stays its
    owner's.

    socket: becomes readable when there is news.
    lost: whether some news was lost, and all ports were read back instead; until it is set back.
    """

    def __init__(self, interfaces: NodeInterfaces, requests: netlink.Socket) -> None:
        """Begin, in the namespace of the calling thread."""
        self._port_of = {interface.ifindex: port for port, interface in interfaces.ports.items()}
        self._requests = requests
        self._events = netlink.Socket(groups=LINK_GROUP)
        self.socket = self._events.socket
        self.lost = False

    def close(self) -> None:
        self._events.close()

    def now(self) -> list[LinkChanged]:
        """How all ports are."""
        dumped = self._requests.dump(netlink.RTM_GETLINK, ALL_LINKS)
        return [told for body in dumped if (told := self._told(netlink.RTM_NEWLINK, body))]

    def read(self) -> Iterator[LinkChanged]:
        """What is new."""
        try:
            data = self._events.receive(socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            self.lost = True
            yield from self.now()
        else:
            for kind, _, _, body in netlink.split(data):
                if kind in (netlink.RTM_NEWLINK, netlink.RTM_DELLINK) and (
                    told := self._told(kind, body)
                ):
                    yield told

    def _told(self, kind: int, body: bytes) -> LinkChanged | None:
        _, _, ifindex, flags, _ = IFINFO.unpack_from(body)
        port = self._port_of.get(ifindex)
        if port is None:
            return None
        is_set_up = kind == netlink.RTM_NEWLINK and bool(flags & IFF_UP)
        return LinkChanged(port, is_set_up, is_set_up and bool(flags & IFF_LOWER_UP))
