"""Changes of a node's devices: up, down, and their carriers."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from typing import NamedTuple

from weft.testbed.linux import netlink
from weft.testbed.linux.interface import IFF_UP, IFINFO, NodeInterfaces

LINK_GROUP = 1
ALL_LINKS = IFINFO.pack(0, 0, 0, 0, 0)
IFF_LOWER_UP = 0x10000


class LinkChanged(NamedTuple):
    """The new state of the device at `port`.

    is_set_up: its administrative state.
    up: it is set up and has a carrier.
    """

    port: int
    is_set_up: bool
    up: bool


class LinkNews:
    """Reports changes of the ports of `interfaces`.

    socket: readable when a change waits.
    lost: changes were lost, and all ports were read back instead; the caller resets it.
    """

    def __init__(self, interfaces: NodeInterfaces, requests: netlink.Socket) -> None:
        """Subscribe in the namespace of the calling thread; `requests` is a socket there."""
        self._port_of = {interface.ifindex: port for port, interface in interfaces.ports.items()}
        self._requests = requests
        self._events = netlink.Socket(groups=LINK_GROUP)
        self.socket = self._events.socket
        self.lost = False

    def close(self) -> None:
        self._events.close()

    def now(self) -> list[LinkChanged]:
        """Return the state of all ports."""
        dump = self._requests.dump(netlink.RTM_GETLINK, ALL_LINKS)
        changes = (self._change(netlink.RTM_NEWLINK, body) for body in dump)
        return [change for change in changes if change]

    def read(self) -> Iterator[LinkChanged]:
        """Yield the changes that wait."""
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
                if kind in (netlink.RTM_NEWLINK, netlink.RTM_DELLINK):
                    change = self._change(kind, body)
                    if change:
                        yield change

    def _change(self, kind: int, body: bytes) -> LinkChanged | None:
        _, _, ifindex, flags, _ = IFINFO.unpack_from(body)
        port = self._port_of.get(ifindex)
        if port is None:
            return None
        is_set_up = kind == netlink.RTM_NEWLINK and bool(flags & IFF_UP)
        return LinkChanged(port, is_set_up, is_set_up and bool(flags & IFF_LOWER_UP))
