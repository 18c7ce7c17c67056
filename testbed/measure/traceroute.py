"""The path that packets take, hop by hop.

trace() sends real packets whose time to live ends at each hop in turn, for all pairs at once, and
lists who answers. fib_paths() asks the forwarding tables instead: cheaper, and it shows every
equal-cost path, but not what links do.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from weft.testbed.linux import icmp, netlink
from weft.testbed.linux.fib import RTA_DST, RTA_GATEWAY, RTA_MULTIPATH, RTMSG
from weft.testbed.measure.probe_batch import ProbeBatch
from weft.testbed.runs.network_handle import NetworkHandle, netlink_of, routers
from weft.topologies.core.address import dotted

# Without a limit every router answers every probe.  (icmp_ratelimit=0 would not do: it lifts the
# limit for each destination, but not icmp_msgs_per_sec, which was one for all namespaces before
# Linux 6.12.  A type not in the mask is subject to neither, in any version: icmpv4_mask_allow() in
# net/ipv4/icmp.c.)
SYSCTLS = {"ipv4/icmp_ratemask": "0"}
PORTS = (33433, 33434)  # source and destination: traceroute's, at which no process listens
MOST_HOPS = 64
RTM_F_FIB_MATCH = 0x2000
RTNEXTHOP_BYTES = 8


@dataclass(frozen=True)
class Trace:
    """The nodes that a packet from `src` to `dst` passed, `src` first, crossbars left out; `dst` is
    last if it arrived.

    reason: None if it arrived, else what ended the path: "no answer from hop 3", "network
        unreachable, says h7", ...
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
    """The path of a UDP packet with source and destination `ports` for each of `pairs`, in their
    order.

    Each hop is asked 1 + `retries` times, `timeout_s` each.  Where several paths cost the same, the
    kernel chooses by the ports, so that other ports may show other paths; nobody may listen to the
    second.
    Raises ValueError for a pair of a node with itself, or with one that has no address.
    """
    tracing = Tracing(net, pairs, ports, timeout_s, retries)
    for one in tracing.walks:
        tracing.fire(one.src, one)
    tracing.run()
    return [Trace(one.src, one.dst, tuple(one.nodes), one.reason) for one in tracing.walks]


def differences(
    traces: Iterable[Trace],
    computed: Callable[[int, int], Sequence[int]],
    name: Callable[[int], str],
) -> list[str]:
    """A line for each trace that is not the path `computed`(src, dst); nodes by `name`."""

    def text(nodes: Sequence[int]) -> str:
        return " ".join(map(name, nodes))

    lines = []
    for one in traces:
        wanted = tuple(computed(one.src, one.dst))
        if one.nodes != wanted or one.reason:
            end = f" ({one.reason})" if one.reason else ""
            lines.append(
                f"{name(one.src)} -> {name(one.dst)}: takes {text(one.nodes)}{end}, "
                f"computed {text(wanted)}"
            )
    return lines


class PathTrace:
    """A pair, while its path is being found."""

    def __init__(self, src: int, dst: int, head: bytes, retries: int) -> None:
        self.src = src
        self.dst = dst
        self.head = head  # the probe's IP header after its TTL
        self.nodes = [src]
        self.retries = retries
        self.left = retries
        self.reason: str | None = None


class Tracing(ProbeBatch[PathTrace]):
    """Packets whose time to live ends on their way, and the errors about them."""

    def __init__(
        self,
        net: NetworkHandle,
        pairs: Iterable[tuple[int, int]],
        ports: tuple[int, int],
        timeout_s: float,
        retries: int,
    ) -> None:
        naming = net.topology.naming
        self.walks = []
        for src, dst in pairs:
            if src == dst:
                raise ValueError(f"trace: {naming.name(src)} to itself is no path")
            ends = struct.pack(">II", naming.address(src), naming.address(dst))
            self.walks.append(PathTrace(src, dst, ends, retries))
        super().__init__(
            net, {one.src for one in self.walks}, (icmp.UNREACHABLE, icmp.TIME_EXCEEDED), timeout_s
        )
        self.routers = routers(net)
        self.name = naming.name
        self.port = ports[0]
        self.token = int.from_bytes(os.urandom(4), "big")
        # The checksum of UDP may be left out in IPv4; the kernel fills in that of IP.
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
            if node is not None and node not in probe.nodes:  # it got that far
                probe.nodes.append(node)
            return
        returned = node in probe.nodes
        probe.nodes.append(node)
        if returned:
            probe.reason = f"came back to {by}"
        elif len(probe.nodes) > MOST_HOPS:
            probe.reason = f"{MOST_HOPS} hops were not enough"
        elif not arrived:
            probe.left = probe.retries
            self.fire(probe.src, probe)

    def lost(self, probe: PathTrace) -> None:
        if probe.left:
            probe.left -= 1
            self.fire(probe.src, probe)
        else:
            probe.reason = f"no answer from hop {len(probe.nodes)}"

    def refused(self, probe: PathTrace, why: OSError) -> None:
        probe.reason = f"{os.strerror(why.errno or 0).lower()}, says {self.name(probe.src)} itself"


class ForwardingTables:
    """The forwarding tables of a network as they stand: each entry is asked for once and
    remembered."""

    def __init__(self, net: NetworkHandle) -> None:
        self.net = net
        self.routers = routers(net)
        self._sockets: dict[int, netlink.Socket] = {}
        self._known: dict[tuple[int, int], tuple[int, ...]] = {}

    def __enter__(self) -> ForwardingTables:
        return self

    def __exit__(self, *_: object) -> None:
        for socket_ in self._sockets.values():
            socket_.close()
        self._sockets.clear()

    def next_hops(self, node: int, dst: int) -> tuple[int, ...]:
        """The nodes to any of which `node` forwards packets for `dst`; OSError with the kernel's
        words if to none."""
        if (node, dst) not in self._known:
            if node not in self._sockets:
                self._sockets[node] = netlink_of(self.net, node)
            self._known[node, dst] = self._ask(node, dst)
        return self._known[node, dst]

    def _ask(self, node: int, dst: int) -> tuple[int, ...]:
        address = self.net.topology.naming.address(dst)
        body = RTMSG.pack(socket.AF_INET, 32, 0, 0, 0, 0, 0, 0, RTM_F_FIB_MATCH)
        body += netlink.attribute(RTA_DST, struct.pack(">I", address))
        space = self.net.identity.namespace(self.net.topology.naming.name(node))
        command = f"ip -n {space} route get fibmatch {dotted(address)}"
        reply = self._sockets[node].get(netlink.RTM_GETROUTE, body, command)
        found = netlink.attributes(reply, RTMSG.size)
        gateways = [found[RTA_GATEWAY]] if RTA_GATEWAY in found else []
        nexthops = found.get(RTA_MULTIPATH, b"")
        while nexthops:
            (size,) = struct.unpack_from("=H", nexthops)
            gateways.append(netlink.attributes(nexthops[:size], RTNEXTHOP_BYTES)[RTA_GATEWAY])
            nexthops = nexthops[(size + 3) & ~3 :]
        return tuple(self.routers[int.from_bytes(gateway, "big")] for gateway in gateways) or (dst,)


def fib_paths(fib: ForwardingTables, src: int, dst: int) -> list[tuple[int, ...]]:
    """Every path from `src` to `dst` that the forwarding tables allow, `src` and `dst` included.

    Raises OSError, in the kernel's words, where a node has no route, and ValueError for a loop.
    """
    done: list[tuple[int, ...]] = []
    paths: list[tuple[int, ...]] = [(src,)]
    while paths:
        path = paths.pop()
        for node in fib.next_hops(path[-1], dst):
            if node in path:
                loop = " ".join(fib.net.topology.naming.name(node) for node in (*path, node))
                raise ValueError(f"routes form a loop: {loop}")
            (done if node == dst else paths).append((*path, node))
    return sorted(done)
