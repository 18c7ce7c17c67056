"""Programs attached as filters at the ports of a node."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from weft.testbed.linux import libbpf, tc
from weft.testbed.linux.interface import NamedDevice
from weft.testbed.linux.netlink import NetlinkMessage
from weft.testbed.runs.network_handle import NetworkHandle, device, netlink_of


class PortFilter(NamedTuple):
    """A function of a loaded program, its descriptor, and the hook that it is attached at."""

    name: str
    fd: int
    hook: int = tc.INGRESS_HOOK


def attach_at_ports(
    net: NetworkHandle, node: int, filters: Sequence[PortFilter], priority: int
) -> None:
    """Attach `filters` at every port of `node`, with clsact.

    Raises:
        NetlinkError: the kernel refused one.
    """
    messages: list[NetlinkMessage] = []
    for port, *_ in net.topology.ports(node):
        place = NamedDevice(net.ifindex(node, port), device(net, node, port))
        messages.append(tc.clsact(place))
        for name, fd, hook in filters:
            messages.append(libbpf.filter_message(place, fd, name, hook=hook, priority=priority))
    with closing(netlink_of(net, node)) as socket:
        socket.request(messages)
