"""Paths of packets, hop by hop.

trace() sends packets whose time to live ends at each hop in turn, for all pairs at once, and lists
the routers that answer.  fib_paths() reads the forwarding tables instead: cheaper, with all
equal-cost paths, but blind to failed links.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from weft.testbed.linux import icmp, netlink
from weft.testbed.linux.fib import RTA_DST, RTMSG, route_hops
from weft.testbed.linux.process import Closing
from weft.testbed.measure.ping import ProbeBatch
from weft.testbed.runs.network_handle import NetworkHandle, netlink_of, routers
from weft.topologies.core.address import dotted

# source and destination, as traceroute's; no process may listen at the second
PORTS = (33433, 33434)
MOST_HOPS = 64
RTM_F_FIB_MATCH = 0x2000


@dataclass(frozen=True)
class Trace:
    """Path of a packet from `src` to `dst`.

    Attributes:
        nodes: routers in order, from `src`; crossbars are left out; `dst` is last if it arrived.
        reason: None if it arrived, else the error, such as "no answer from hop 3".
    """

    src: int
    dst: int
    nodes: tuple[int, ...]
    reason: str | None


def trace(
    net: NetworkHandle,
    pairs: Iterable[tuple[int, int]],
    *,
    ports: tuple[int, int] = PORTS,
    timeout_s: float = 1.0,
    retries: int = 2,
) -> list[Trace]:
    """Return the path of a UDP packet for each pair, in the order of `pairs`.

    Args:
        net: the network.
        pairs: source and destination nodes.
        ports: source and destination ports; the kernel chooses among equal-cost paths by them.  No
            process may listen at the second.
        timeout_s: time to wait for an answer of a hop.
        retries: further probes to a hop that does not answer.

    Raises:
        ValueError: source and destination are one node, or a node has no address.
    """
    tracing = Tracing(net, pairs, ports, timeout_s, retries)
    for path in tracing.paths:
        tracing.fire(path.src, path)
    tracing.run()
    return [Trace(path.src, path.dst, tuple(path.nodes), path.reason) for path in tracing.paths]


def differences(
    traces: Iterable[Trace],
    computed: Callable[[int, int], Sequence[int]],
    name: Callable[[int], str],
) -> list[str]:
    """Return a line for each trace that differs from the computed path.

    Args:
        traces: paths of packets.
        computed: path of a (source, destination).
        name: name of a node.
    """

    def text(nodes: Sequence[int]) -> str:
        return " ".join(map(name, nodes))

    lines = []
    for path in traces:
        expected = tuple(computed(path.src, path.dst))
        if path.nodes != expected or path.reason:
            end = f" ({path.reason})" if path.reason else ""
            lines.append(
                f"{name(path.src)} -> {name(path.dst)}: takes {text(path.nodes)}{end}, "
                f"computed {text(expected)}"
            )
    return lines


class PathTrace:
    """State of a pair during a trace."""

    def __init__(self, src: int, dst: int, head: bytes, retries: int) -> None:
        self.src = src
        self.dst = dst
        self.head = head  # addresses in the probe's IP header
        self.nodes = [src]
        self.retries = retries
        self.retries_left = retries
        self.reason: str | None = None


class Tracing(ProbeBatch[PathTrace]):
    """Packets whose time to live ends on the way, and the errors about them."""

    def __init__(
        self,
        net: NetworkHandle,
        pairs: Iterable[tuple[int, int]],
        ports: tuple[int, int],
        timeout_s: float,
        retries: int,
    ) -> None:
        naming = net.topology.naming
        self.paths = []
        for src, dst in pairs:
            if src == dst:
                raise ValueError(f"trace: {naming.name(src)} to itself is no path")
            ends = struct.pack(">II", naming.address(src), naming.address(dst))
            self.paths.append(PathTrace(src, dst, ends, retries))
        super().__init__(
            net,
            {path.src for path in self.paths},
            (icmp.UNREACHABLE, icmp.TIME_EXCEEDED),
            timeout_s,
        )
        self.routers = routers(net)
        self.name = naming.name
        self.port = ports[0]
        self.token = int.from_bytes(os.urandom(4), "big")
        # IPv4 allows UDP without a checksum; the kernel fills in that of IP.
        self.udp = struct.pack(">HHHHI", *ports, 12, 0, self.token)

    def sender(self) -> socket.socket:
        return icmp.sender(socket.IPPROTO_RAW)

    def send(self, sender: socket.socket, probe: PathTrace, sequence: int) -> None:
        head = struct.pack(
            ">BBHHHBBH", 0x45, 0, 32, sequence, 0, len(probe.nodes), socket.IPPROTO_UDP, 0
        )
        sender.sendto(head + probe.head + self.udp, (socket.inet_ntoa(probe.head[4:]), 0))

    def is_mine(self, answer: icmp.IcmpReply) -> bool:
        mine = answer.protocol == socket.IPPROTO_UDP and answer.key >> 16 == self.port
        return mine and answer.token == self.token

    def answered(self, probe: PathTrace, answer: icmp.IcmpReply, rtt_us: float) -> None:
        node = self.routers.get(answer.by)
        by = dotted(answer.by) if node is None else self.name(node)
        arrived = answer.kind == icmp.UNREACHABLE and answer.code == icmp.PORT_UNREACHABLE
        if node is None or not (arrived or answer.kind == icmp.TIME_EXCEEDED):
            probe.reason = f"{icmp.words(answer)}, says {by}"
            if node is not None and node not in probe.nodes:  # the probe reached this router
                probe.nodes.append(node)
            return
        returned = node in probe.nodes
        probe.nodes.append(node)
        if returned:
            probe.reason = f"came back to {by}"
        elif len(probe.nodes) > MOST_HOPS:
            probe.reason = f"{MOST_HOPS} hops were not enough"
        elif not arrived:
            probe.retries_left = probe.retries
            self.fire(probe.src, probe)

    def lost(self, probe: PathTrace) -> None:
        if probe.retries_left:
            probe.retries_left -= 1
            self.fire(probe.src, probe)
        else:
            probe.reason = f"no answer from hop {len(probe.nodes)}"

    def refused(self, probe: PathTrace, why: OSError) -> None:
        probe.reason = f"{os.strerror(why.errno or 0).lower()}, says {self.name(probe.src)} itself"


class ForwardingTables(Closing):
    """Forwarding tables of a network; each entry is read once and cached."""

    def __init__(self, net: NetworkHandle) -> None:
        self.net = net
        self.routers = routers(net)
        self._sockets: dict[int, netlink.Socket] = {}
        self._cache: dict[tuple[int, int], tuple[int, ...]] = {}

    def close(self) -> None:
        for socket_ in self._sockets.values():
            socket_.close()
        self._sockets.clear()

    def next_hops(self, node: int, dst: int) -> tuple[int, ...]:
        """Return the next hops of `node` towards `dst`.

        Raises:
            OSError: there is no route; the message is the kernel's.
        """
        if (node, dst) not in self._cache:
            if node not in self._sockets:
                self._sockets[node] = netlink_of(self.net, node)
            self._cache[node, dst] = self._lookup(node, dst)
        return self._cache[node, dst]

    def _lookup(self, node: int, dst: int) -> tuple[int, ...]:
        address = self.net.topology.naming.address(dst)
        body = RTMSG.pack(socket.AF_INET, 32, 0, 0, 0, 0, 0, 0, RTM_F_FIB_MATCH)
        body += netlink.network_u32(RTA_DST, address)
        space = self.net.identity.namespace(self.net.topology.naming.name(node))
        command = f"ip -n {space} route get fibmatch {dotted(address)}"
        reply = self._sockets[node].get(netlink.RTM_GETROUTE, body, command)
        gateways = [gateway for _, gateway in route_hops(netlink.attributes(reply, RTMSG.size))]
        return tuple(self.routers[gateway] for gateway in gateways) or (dst,)


def fib_paths(fib: ForwardingTables, src: int, dst: int) -> list[tuple[int, ...]]:
    """Return every path from `src` to `dst` in the forwarding tables, both ends included.

    Raises:
        OSError: a node has no route; the message is the kernel's.
        ValueError: the routes form a loop.
    """
    complete: list[tuple[int, ...]] = []
    paths: list[tuple[int, ...]] = [(src,)]
    while paths:
        path = paths.pop()
        for node in fib.next_hops(path[-1], dst):
            if node in path:
                loop = " ".join(fib.net.topology.naming.name(node) for node in (*path, node))
                raise ValueError(f"routes form a loop: {loop}")
            (complete if node == dst else paths).append((*path, node))
    return sorted(complete)
