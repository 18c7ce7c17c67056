"""Packets trimmed to headers by real switches: when, what is left, and which queue it takes."""

from __future__ import annotations

import ctypes
import re
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path

import pytest

from tests.daemons.transport.trimming_queue import LinkModel, TrimmingQueue
from weft.daemons.core import registry
from weft.daemons.transport import endpoint
from weft.testbed.data_plane.data_plane import DataPlane, check_trims
from weft.testbed.linux import libbpf, netlink, netns, tc
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure.kernel_counters import PortCounterReader, PortCounters
from weft.testbed.network import impair, read_back
from weft.testbed.network.network import RunningNetwork
from weft.topologies import build
from weft.topologies.core.address import dotted
from weft.topologies.core.link import LinkSpec, Mbps

PORT, PAYLOAD = 9, 1472
IP_RECVTOS, SO_NO_CHECK = 13, 11
LINK = LinkSpec(rate_bps=Mbps, queue_packets=250, trim_packets=3, header_packets=200)
RULE = """
#include <linux/types.h>
#define __always_inline inline __attribute__((always_inline))
int to_trim(unsigned most, unsigned waiting, unsigned length, unsigned random)
{
	return is_to_trim(most, waiting, length, random);
}
"""


def test_constants_are_the_same_in_both_languages() -> None:
    defined = dict(
        re.findall(r"#define (\w+) (0x[0-9a-f]+|\d+)", (libbpf.DIRECTORY / "trim.h").read_text())
    )
    assert {name: int(value, 0) for name, value in defined.items()} == {
        "TRIM_SIZE": endpoint.HEADER_BYTES,
        "TRIMMABLE": endpoint.TRIMMABLE,
        "CONTROL": endpoint.CONTROL,
        "TRIMMED": endpoint.TRIMMED,
        "TRIMMED_AT_HOST": endpoint.TRIMMED_AT_HOST,
        "HEADERS": tc.HEADER_PRIORITY,
        "DATA_QUEUE": tc.FIFO,
    }
    assert tc.HEADER_BYTES == endpoint.HEADER_BYTES


def test_the_kernel_trims_what_the_simulated_queue_does(tmp_path: Path) -> None:
    library, source = tmp_path / "trim.so", (libbpf.DIRECTORY / "trim.h").read_text()
    rule = re.search(r"static __always_inline int is_to_trim.*?\n}\n", source, re.DOTALL)
    assert rule
    text = RULE.replace("int to_trim", rule.group() + "int to_trim", 1)
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-xc", "-", "-o", str(library)],
        input=text,
        text=True,
        check=True,
    )
    in_c = ctypes.CDLL(str(library)).to_trim
    for trim_packets, length, random in product((1, 3, 8), (65, 700, 1514), (2, 3)):
        most = trim_packets * 1514
        edges = [most - places * length + off for places in (1, 2) for off in (-1, 0, 1)]
        waits = [waiting for waiting in [*range(0, 14_000, 379), *edges] if waiting >= 0]
        queue = TrimmingQueue(
            LinkModel(rate_bps=1, trim_bytes=most),
            False,
            lambda even=random % 2 == 0: 0.5 if even else 0.4,
            id,
            id,
        )
        for waiting in waits:
            queue._data_bytes[1] = waiting
            assert in_c(most, waiting, length, random) == queue.trims(length, 1), (
                most,
                waiting,
                length,
                random,
            )


def test_a_scheme_that_leaves_packets_to_the_kernel_cannot_trim() -> None:
    from weft.testbed.plan.plane_selection import planes

    for spec in ("ecmp", "static"):
        with pytest.raises(
            ValueError, match=f"{spec} leaves packets to the kernel, which trims none"
        ):
            planes(build("star:n=3"), spec, LINK)
    assert planes(build("star:n=3"), "rps", LINK).balancing == "rps"


def test_a_kernel_that_hides_its_queues_cannot_trim() -> None:
    with pytest.raises(ValueError, match="this kernel does not show its queues"):
        check_trims("rps", registry.rule("rps"), "none")
    check_trims("rps", registry.rule("rps"), "probe")


@pytest.fixture(scope="module")
def star() -> Iterator[RunningNetwork]:
    network = RunningNetwork.create(build("star:n=3"), LINK, scheme="vlb")
    try:
        yield network
    finally:
        network.down()


@pytest.fixture
def udp(star: RunningNetwork) -> Iterator[Callable[..., socket.socket]]:
    """Sockets at hosts, with a code point and a priority."""
    with ExitStack() as stack:

        def make(host: int, code_point: int = 0, priority: int = 0) -> socket.socket:
            with netns.inside(star.netns(host)):
                one = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            one.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, code_point << 2)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, priority)
            one.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            one.setsockopt(socket.IPPROTO_IP, IP_RECVTOS, 1)
            one.settimeout(2)
            return one

        yield make


def address(host: int, network: RunningNetwork) -> tuple[str, int]:
    return dotted(network.topology.naming.address(host)), PORT


def datagrams(receiver: socket.socket, count: int) -> list[tuple[int, int, int, int]]:
    """Of each of `count` datagrams its first two bytes, its length and its code point."""
    rows = []
    for _ in range(count):
        payload, extra, _, _ = receiver.recvmsg(2000, 64)
        rows.append((payload[0], payload[1], len(payload), extra[0][2][0] >> 2))
    return rows


def ports(network: RunningNetwork) -> dict[tuple[int, int], PortCounters]:
    with PortCounterReader(network) as counters:
        found = counters.snapshot().ports
    return {
        (node, port): found[network.ifindex(node, port)]
        for node in range(4)
        for port, *_ in network.topology.ports(node)
    }


@pytest.mark.kernel
def test_two_senders_lose_payload_but_no_header(
    star: RunningNetwork, udp: Callable[..., socket.socket]
) -> None:
    receiver = udp(0)
    receiver.bind(address(0, star))
    senders = [udp(host, endpoint.TRIMMABLE) for host in (1, 2)]
    with DataPlane.open(star) as plane:
        before = plane.counters()[3, 0].trimmed
        for number in range(20):
            for each, sender in enumerate(senders):
                sender.sendto(bytes([each, number]) + bytes(PAYLOAD - 2), address(0, star))
        rows = datagrams(receiver, 40)
        trimmed = plane.counters()[3, 0].trimmed - before
    assert sorted(row[:2] for row in rows) == [
        (each, number) for each in (0, 1) for number in range(20)
    ]
    headers = [row for row in rows if row[2] != PAYLOAD]
    assert {header[2:] for header in headers} == {
        (endpoint.HEADER_BYTES - 42, endpoint.TRIMMED_AT_HOST)
    }
    assert 0 < len(headers) == trimmed < 40
    assert {row[3] for row in rows} == {endpoint.TRIMMABLE, endpoint.TRIMMED_AT_HOST}
    first = next(at for at, row in enumerate(rows) if row[2] != PAYLOAD)
    # it overtook data
    assert any(row[2] == PAYLOAD and row[1] < rows[first][1] for row in rows[first:])
    assert all(
        port.unexplained_drops == port.queue_drops == port.header_drops == 0
        for port in ports(star).values()
    )


@pytest.mark.kernel
def test_the_status_of_a_network_tells_of_trimming(
    star: RunningNetwork, network: Callable[..., RunningNetwork]
) -> None:
    with DataPlane.open(star) as plane:
        trimmed = sum(port.trimmed for port in plane.counters().values())
    assert star.status()["trimming"] == {
        "trimmed_packets": trimmed,
        "untrimmed_packets": 0,
        "header_drops": 0,
    }
    assert network("star:n=2", scheme="rps").status()["trimming"] is None


@pytest.mark.kernel
def test_headers_have_ten_times_the_share(
    star: RunningNetwork, udp: Callable[..., socket.socket]
) -> None:
    receiver = udp(0)
    receiver.bind(address(0, star))
    data, control = udp(1, endpoint.TRIMMABLE), udp(1, endpoint.CONTROL, tc.HEADER_PRIORITY)
    for _ in range(20):
        data.sendto(bytes([1]) + bytes(PAYLOAD - 1), address(0, star))
    for _ in range(150):
        control.sendto(bytes([2]) + bytes(21), address(0, star))
    order = "".join(str(datagram[0]) for datagram in datagrams(receiver, 170))
    runs = [len(run) for run in order.split("1") if run]
    assert 8 <= sorted(runs)[len(runs) // 2] <= 12, order


@pytest.mark.kernel
def test_other_packets_are_as_ever(star: RunningNetwork, udp: Callable[..., socket.socket]) -> None:
    """Of another code point, or so short that nothing would be cut off."""
    receiver = udp(0)
    receiver.bind(address(0, star))
    for code_point, length in ((0, PAYLOAD), (endpoint.TRIMMABLE, 22)):
        senders = [udp(host, code_point) for host in (1, 2)]
        for number in range(10):
            for each, sender in enumerate(senders):
                sender.sendto(bytes([each, number]) + bytes(length - 2), address(0, star))
        assert {datagram[2:] for datagram in datagrams(receiver, 20)} == {(length, code_point)}


@pytest.mark.kernel
def test_packets_before_a_port_without_its_queue_of_data_are_counted(
    network: Callable[..., RunningNetwork],
) -> None:
    net = network("star:n=3", LINK, "rps")
    (_, _, end), *_ = (ends for ends in net.both_ends(net.topology.link("h0-r0")) if ends[0] == 3)
    with net.at(3) as requests:
        requests.request([tc.fifo(end, tc.ROOT, 0, 100, flags=netlink.REPLACE)])
    with netns.inside(net.netns(1)):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sender:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, endpoint.TRIMMABLE << 2)
        for _ in range(5):
            sender.sendto(bytes(PAYLOAD), address(0, net))
    wait_until("five packets are counted", lambda: untrimmed_count(net) == 5)


def untrimmed_count(network: RunningNetwork) -> int:
    return network.status()["trimming"]["untrimmed_packets"]


@pytest.mark.kernel
def test_a_full_queue_of_headers_is_counted_apart(network: Callable[..., RunningNetwork]) -> None:
    net = network(
        "star:n=3",
        LinkSpec(rate_bps=Mbps, queue_packets=250, trim_packets=2, header_packets=3),
        "rps",
    )
    assert ports(net)[3, 0].header_drops == 0
    with netns.inside(net.netns(1)):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sender:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, endpoint.CONTROL << 2)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, tc.HEADER_PRIORITY)
        for _ in range(40):
            sender.sendto(bytes(200), address(0, net))
    host = ports(net)[1, 0]
    assert host.header_drops > 0
    assert host.header_drops + host.sent_packets + host.waiting_packets == 40
    assert host.queue_drops == host.unexplained_drops == 0


@pytest.mark.kernel
def test_what_the_kernel_holds_is_what_was_planned(star: RunningNetwork) -> None:
    read_back.check(star)
    with star.at(3) as at:
        assert tc.shapes(at)[star.ifindex(3, 0)] == tc.DeviceDisciplines(Mbps, 250, None, 200)
    network = RunningNetwork.open(star.run.id)
    try:
        assert network.plan.link == LINK
        impair.set_rate(network, "h2-r0", 500_000)
        with star.at(3) as at:
            assert tc.shapes(at)[star.ifindex(3, 2)] == tc.DeviceDisciplines(
                500_000, 250, None, 200
            )
        impair.set_rate(network, "h2-r0", Mbps)
        with pytest.raises(ValueError, match="ecmp leaves packets to the kernel, which trims none"):
            network.change_scheme("ecmp")
        network.change_scheme("rps")
        with DataPlane.open(network) as plane:
            assert plane.trims
    finally:
        network.close()


@pytest.mark.kernel
def test_a_trimmed_packet_is_a_whole_one(
    star: RunningNetwork, udp: Callable[..., socket.socket]
) -> None:
    """Its lengths and checksum are right, its addresses, ports and first bytes those that were
    sent."""
    with netns.inside(star.netns(0)):
        watcher = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
    senders = [udp(host, endpoint.TRIMMABLE) for host in (1, 2)]
    for sender in senders:
        sender.bind(("0.0.0.0", 4000))
    with watcher:
        watcher.settimeout(2)
        for number in range(12):
            for sender in senders:
                sender.sendto(bytes(range(number, number + 100)) + bytes(900), address(0, star))
        frames = [watcher.recv(2000) for _ in range(24)]
    trimmed = [frame for frame in frames if len(frame) == endpoint.HEADER_BYTES]
    assert trimmed
    for frame in trimmed:
        total, ttl, protocol = struct.unpack_from(">H", frame, 16)[0], frame[22], frame[23]
        assert (total, ttl, protocol) == (50, 63, 17)
        words = sum(struct.unpack(">10H", frame[14:34]))
        assert (words & 0xFFFF) + (words >> 16) == 0xFFFF
        assert struct.unpack(">4H", frame[34:42]) == (4000, PORT, 30, 0)
        assert frame[42:] == bytes(range(frame[42], frame[42] + 22))
