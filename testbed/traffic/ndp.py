"""Messages over the purified transport (daemons/transport), from one loop in C (ndp_loop.c).

    run(net, [NdpMessage(0.0, src, 0, 100_000) for src in range(1, 33)], parameters_of(net),
    deadline_s=5.0)

A socket keeps the namespace that it was opened in, so one loop holds those of all hosts: one for
data, one for control, whose packets have their code points and, in the host's own port, their
queues.  Payload is checked on arrival.  The network should trim (LinkSpec.trim_packets); one that
does not only loses packets, which are then asked after.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from ctypes import byref
from dataclasses import dataclass
from typing import NamedTuple

from weft.daemons.routing.route_addresses import first_octet
from weft.daemons.transport.endpoint import (
    CONTROL,
    MOST_PACKETS,
    TRIMMABLE,
    EndpointCounters,
    Parameters,
    reason,
    timeout_ns,
)
from weft.testbed.linux import clock, netns, tc
from weft.testbed.linux.interface import interfaces
from weft.testbed.linux.process import allow_more_descriptors
from weft.testbed.runs.network_handle import NetworkHandle, netlink_of
from weft.testbed.traffic import ndp_library
from weft.testbed.traffic.ndp_library import NEVER, CHost, CMessage, CParameters, CRun
from weft.topologies.core.address import SERVER_BLOCK, dotted
from weft.topologies.core.link import ETHERNET_BYTES

PORT = 6331
# on a clock that does not wait: a host may not run for so long on a busy machine
LEAST_TIMEOUT_NS = 100_000_000
REAL_TIME_PRIORITY = 10
BUFFER_BYTES = 8 << 20
IP_RECVTOS, SO_NO_CHECK, SO_RCVBUFFORCE, SO_SNDBUFFORCE, SO_MEMINFO = 13, 11, 33, 32, 55
MEMINFO = struct.Struct("=9I")  # the last: datagrams dropped because the buffer was full


class NdpMessage(NamedTuple):
    """`size_bytes` from host `src` to host `dst`, `at_s` after the beginning."""

    at_s: float
    src: int
    dst: int
    size_bytes: int


@dataclass(frozen=True)
class MessageResult:
    """Result of a message; times are since the beginning, None for an event that did not happen.

    delivered_s: the receiver had all of it.
    finished_s: the sender knew, or gave up.
    failed: why the sender gave up.
    """

    message: NdpMessage
    began_s: float | None
    delivered_s: float | None
    finished_s: float | None
    failed: str | None

    @property
    def seconds(self) -> float | None:
        """Completion time, from its beginning until its delivery."""
        if self.delivered_s is None or self.began_s is None:
            return None
        return self.delivered_s - self.began_s


@dataclass(frozen=True)
class NdpResults:
    """All messages in order of their beginning, and the sums of all hosts' counters.

    late_s: largest lateness of the loop.
    garbage: datagrams that were no packets.
    unknown: packets of no message of the run.
    corrupt: packets with another payload than was sent.
    unsent, unread: losses at hosts: packets that the sender's socket refused, and packets for which
        the receiver's socket had no room.
    """

    results: tuple[MessageResult, ...]
    parameters: Parameters
    counters: EndpointCounters
    late_s: float
    garbage: int
    unknown: int
    corrupt: int
    unsent: int
    unread: int

    @property
    def undelivered(self) -> list[str]:
        """Reasons of the messages that were not delivered."""
        late = "deadline reached"
        return [result.failed or late for result in self.results if result.delivered_s is None]

    @property
    def last_s(self) -> float:
        """Time of the last delivery, in s."""
        times = (result.delivered_s for result in self.results)
        return max((time_s for time_s in times if time_s is not None), default=0.0)


def parameters_of(net: NetworkHandle, *, layers: int = 1) -> Parameters:
    """Return the parameters of the hosts of `net`, by the link of the first host.

    Raises:
        ValueError: that link has no rate.
    """
    with closing(netlink_of(net, 0)) as requests:
        index = net.ifindex(0, net.topology.ports(0)[0][0])
        shape = tc.shapes(requests).get(index)
        frame_bytes = interfaces(requests)[index].mtu + ETHERNET_BYTES
    if not shape or not shape.rate_bps:
        raise ValueError(
            "the purified transport paces packets by the rate of links, and these have none"
        )
    least_ns = 1_000_000 if clock.is_virtual() else LEAST_TIMEOUT_NS
    after_ns = timeout_ns(shape.rate_bps, frame_bytes, least_ns=least_ns)
    return Parameters(
        rate_bps=shape.rate_bps,
        frame_bytes=frame_bytes,
        layers=layers,
        timeout_ns=after_ns,
    )


def run(
    net: NetworkHandle,
    messages: Iterable[NdpMessage],
    parameters: Parameters,
    *,
    deadline_s: float,
    first_flow: int = 0,
    real_time: bool = True,
) -> NdpResults:
    """Send `messages`; return when every one has ended, or after `deadline_s`.

    Args:
        net: a network with rates.
        messages: in any order.
        parameters: of all hosts.
        deadline_s: time limit.
        first_flow: number of the first message, if packets of an earlier run may still arrive.
        real_time: whether the loop has real-time priority.

    Raises:
        ValueError: a message to its own host, of no host, or of no size.
        OSError: a system call failed.
    """
    ordered = sorted(messages)
    check(net, ordered, parameters)
    hosts = range(net.topology.servers)
    allow_more_descriptors(2 * len(hosts))
    with ExitStack() as stack:
        sockets = [_sockets(stack, net, host) for host in hosts]
        c_messages = _c_messages(ordered)
        c_hosts = _c_hosts(net, sockets)
        c_run = CRun(
            hosts=c_hosts,
            messages=c_messages,
            octets=octets(parameters.layers),
            parameters=CParameters.of(parameters),
            deadline=round(1e9 * deadline_s),
            n_hosts=len(hosts),
            n_messages=len(ordered),
            first_flow=first_flow,
            port=PORT,
        )
        _call_ndp_run(c_run, real_time)
        unread = sum(_unread(data) for data, _ in sockets)
    results = tuple(map(_result, c_messages, ordered))
    return _results(results, parameters, c_run, unread)


def _c_messages(messages: Sequence[NdpMessage]) -> ctypes.Array[CMessage]:
    rows = (CMessage(round(1e9 * at_s), size, src, dst) for at_s, src, dst, size in messages)
    return (CMessage * len(messages))(*rows)


def _c_hosts(
    net: NetworkHandle, sockets: Sequence[tuple[socket.socket, socket.socket]]
) -> ctypes.Array[CHost]:
    rows = (
        CHost(data.fileno(), control.fileno(), _c_address(net, host))
        for host, (data, control) in enumerate(sockets)
    )
    return (CHost * len(sockets))(*rows)


def _results(
    results: tuple[MessageResult, ...], parameters: Parameters, c_run: CRun, unread: int
) -> NdpResults:
    return NdpResults(
        results,
        parameters,
        c_run.counters.counters(),
        c_run.late_ns / 1e9,
        c_run.garbage,
        c_run.unknown,
        c_run.corrupt,
        c_run.unsent,
        unread,
    )


def check(net: NetworkHandle, messages: Sequence[NdpMessage], parameters: Parameters) -> None:
    """Raise ValueError for a message that run() cannot send."""
    hosts, most = range(net.topology.servers), MOST_PACKETS * parameters.payload_bytes
    for message in messages:
        if message.src == message.dst or message.src not in hosts or message.dst not in hosts:
            raise ValueError(
                f"messages: {message} must lead from one of {len(hosts)} hosts to another"
            )
        if not 0 < message.size_bytes <= most or message.at_s < 0:
            raise ValueError(
                f"messages: {message} must have 1 to {most} bytes and begin at 0 s or later"
            )


def octets(layers: int) -> bytes:
    """Return the first octet of addresses in each layer; one layer uses hosts' own addresses."""
    if layers == 1:
        return bytes([SERVER_BLOCK >> 24])
    return bytes(map(first_octet, range(layers)))


def _address(net: NetworkHandle, host: int) -> str:
    return dotted(net.topology.naming.address(host))


def _c_address(net: NetworkHandle, host: int) -> int:
    """Return the address of a host in network order."""
    address: int = struct.unpack("=I", socket.inet_aton(_address(net, host)))[0]
    return address


def _sockets(
    stack: ExitStack, net: NetworkHandle, host: int
) -> tuple[socket.socket, socket.socket]:
    """Return a host's sockets of data and of control."""
    pair = []
    for code_point, priority in ((TRIMMABLE, 0), (CONTROL, tc.HEADER_PRIORITY)):
        with netns.inside(net.netns(host)):
            endpoint = stack.enter_context(
                socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            )
        endpoint.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, code_point << 2)
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, priority)  # IP_TOS sets it, too
        endpoint.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)  # what is trimmed has no checksum
        endpoint.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER_BYTES)
        endpoint.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        pair.append(endpoint)
    data, control = pair
    data.setsockopt(socket.IPPROTO_IP, IP_RECVTOS, 1)
    data.bind((_address(net, host), PORT))
    control.bind((_address(net, host), 0))
    return data, control


def _call_ndp_run(c_run: CRun, real_time: bool) -> None:
    """Call ndp_run() on a thread of its own; OSError if it fails."""
    library = ndp_library.library()

    def work() -> int:
        if real_time:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(REAL_TIME_PRIORITY))
        status: int = library.ndp_run(byref(c_run))
        return status

    error = -netns.in_thread(work)
    if error:
        raise OSError(error, f"ndp_run: {os.strerror(error)}")


def _unread(data: socket.socket) -> int:
    """Return the datagrams dropped by the socket's full buffer."""
    drops: int = MEMINFO.unpack(data.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, MEMINFO.size))[-1]
    return drops


def _result(c_message: CMessage, message: NdpMessage) -> MessageResult:
    began, delivered, finished = (
        None if time_ns == NEVER else time_ns / 1e9
        for time_ns in (c_message.began, c_message.delivered, c_message.finished)
    )
    failed = None
    if c_message.packets:
        failed = reason(
            message.dst, c_message.silent_ns, c_message.unacknowledged, c_message.packets
        )
    return MessageResult(message, began, delivered, finished, failed)
