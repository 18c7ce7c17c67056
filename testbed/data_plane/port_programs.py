"""Programs attached as filters at ports of a node, and the counters that they keep."""

from __future__ import annotations

import errno
import struct
import sys
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import NamedTuple, Protocol

from weft.testbed.linux import libbpf, tc, tc_filters
from weft.testbed.linux.interface import NamedDevice
from weft.testbed.linux.netlink import NetlinkMessage
from weft.testbed.runs.network_handle import NetworkHandle, device, netlink_of

# the filter is gone, or with it the discipline that held it
GONE = frozenset({errno.ENOENT, errno.EINVAL})


class PortFilter(NamedTuple):
    """A function of a loaded program, its descriptor, and the hook that it is attached at."""

    name: str
    fd: int
    hook: int = tc_filters.INGRESS_HOOK


def _place(net: NetworkHandle, node: int, port: int) -> NamedDevice:
    return NamedDevice(net.ifindex(node, port), device(net, node, port))


def attach_at_ports(
    net: NetworkHandle, node: int, filters: Sequence[PortFilter], priority: int
) -> None:
    """Attach `filters` at every port of `node`; see attach()."""
    attach(net, node, [port for port, *_ in net.topology.ports(node)], filters, priority)


def attach(
    net: NetworkHandle,
    node: int,
    ports: Iterable[int],
    filters: Sequence[PortFilter],
    priority: int,
) -> None:
    """Attach `filters` at these ports of `node`, with clsact.

    Raises:
        NetlinkError: the kernel refused one.
    """
    messages: list[NetlinkMessage] = []
    for port in ports:
        place = _place(net, node, port)
        messages.append(tc.clsact(place))
        for name, fd, hook in filters:
            messages.append(libbpf.filter_message(place, fd, name, hook=hook, priority=priority))
    with closing(netlink_of(net, node)) as socket:
        socket.request(messages)


def program_at(
    net: NetworkHandle, node: int, port: int, priority: int, hook: int = tc_filters.INGRESS_HOOK
) -> int | None:
    """Return the id of the program of `priority` at `hook` of a port; None without one."""
    with closing(netlink_of(net, node)) as socket:
        for options in tc_filters.filter_options(socket, net.ifindex(node, port), priority, hook):
            if libbpf.TCA_BPF_ID in options:
                return int.from_bytes(options[libbpf.TCA_BPF_ID], sys.byteorder)
    return None


def detach(net: NetworkHandle, node: int, ports: Iterable[int], hook: int, priority: int) -> None:
    """Remove the filters of `priority` at `hook` of these ports of `node`."""
    messages = [tc_filters.remove_filter(_place(net, node, port), priority, hook) for port in ports]
    with closing(netlink_of(net, node)) as socket:
        socket.request(messages, tolerate=GONE)


class MapSource(Protocol):
    """A source of maps: an object just loaded, or a running program."""

    def map(self, name: str, key: str, value: str) -> libbpf.Map: ...
    def entries(self, name: str) -> int: ...
    def close(self) -> None: ...


class CounterMap:
    """The per-processor array `name` of `maps`, with `count` 64-bit counters in an entry."""

    def __init__(self, maps: MapSource, name: str, count: int) -> None:
        fd = maps.map(name, "=I", f"={count}Q").fd
        every = struct.Struct(f"={libbpf.possible_cpus() * count}Q")
        self._entries = libbpf.Map(fd, struct.Struct("=I"), every)
        self._count = count

    def sums(self, entry: int = 0) -> list[int]:
        """Return the counters of an entry, summed over processors."""
        values = self._entries[entry,]
        return [sum(values[counter :: self._count]) for counter in range(self._count)]
