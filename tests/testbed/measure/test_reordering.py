"""Reordering as it is counted, against a naive count of packets that were put in the wrong order on
purpose."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable

import pytest

from weft.testbed.data_plane.data_plane import DataPlane
from weft.testbed.linux import netns
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure import reordering
from weft.testbed.measure.reordering import Reordering, quantile
from weft.testbed.network.network import RunningNetwork
from weft.testbed.plan.network_plan import mac
from weft.testbed.traffic import flows
from weft.testbed.traffic.flows import Flow
from weft.topologies.core.link import LinkSpec, Mbps

PORTS = (4000, 5000)


def test_a_quantile_is_the_first_class_with_enough() -> None:
    assert quantile([0, 5, 0, 5], 50) == 1
    assert quantile([0, 5, 0, 5], 51) == 3
    assert quantile([0, 0], 99) == 0


def test_classes_of_delays_double_in_four_steps() -> None:
    bounds = [round(bound / reordering.UNIT_US) for bound in reordering.bounds_us()]
    assert bounds[:17] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32]
    assert bounds == sorted(set(bounds))


def naive(arrived: list[int]) -> list[int]:
    """The extents of RFC 4737, section 4.2.2, of packets in their order of arrival."""
    extents = []
    for i, number in enumerate(arrived):
        later = [j for j in range(i) if arrived[j] > number]
        if later:
            extents.append(i - later[0])
    return extents


def frame(identification: int) -> bytes:
    """A UDP packet from h0 to h1 with this identification, as a spine sends it to e1."""
    first = struct.pack(">BBHHHBB", 0x45, 0, 32, identification & 0xFFFF, 0x4000, 60, 17)
    addresses = bytes([10, 0, 0, 0, 10, 0, 1, 0])
    total = sum(struct.unpack(">9H", first + addresses))
    check = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    header = first + struct.pack(">H", check) + addresses
    return (
        mac(3, 1)
        + mac(4, 1)
        + b"\x08\x00"
        + header
        + struct.pack(">HHHH", *PORTS, 12, 0)
        + bytes(4)
    )


@pytest.mark.kernel
def test_late_packets_and_their_extents_are_those_of_the_definition(
    network: Callable[..., RunningNetwork],
) -> None:
    """The first packet is real and makes the flow known; its followers are put in behind the first
    switch, shuffled."""
    net = network("clos:n=1,r=2,m=2", None)
    drawn = random.Random(4)
    arrived = [0]
    for first in range(1, 1401, 20):
        stretch = list(range(first, first + 20))
        drawn.shuffle(stretch)
        arrived += stretch[: drawn.randint(15, 20)]
    with Reordering(net) as watched:
        with netns.inside(net.netns(0)):
            sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sender.bind(("10.0.0.0", PORTS[0]))
        sender.sendto(bytes(4), ("10.0.1.0", PORTS[1]))
        wait_until("the first packet at h1", lambda: watched.read().total("received") == 1)
        with netns.inside(net.netns(4)):
            spine = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        spine.bind(("c0-eth1", 0))
        for number in arrived[1:]:
            spine.send(frame(number))
        wait_until("all packets at h1", lambda: watched.read().total("received") == len(arrived))
        sender.close()
        spine.close()
    (flow,) = watched.table.flows
    expected = naive(arrived)
    assert (flow.sent, flow.received, flow.late, flow.ports) == (
        1,
        len(arrived),
        len(expected),
        PORTS,
    )
    assert list(watched.table.extents) == [expected.count(i) for i in range(reordering.EXTENTS)]
    assert watched.table.extent(99) == sorted(expected)[-(-99 * len(expected) // 100) - 1]


@pytest.mark.kernel
def test_tcp_in_order_has_no_late_packet_and_random_spraying_has_many(
    network: Callable[..., RunningNetwork],
) -> None:
    # Four hosts a leaf for three spines: packets meet at an uplink often, so that one path is
    # longer than another.
    net = network("clos:n=4,r=2,m=3", LinkSpec(rate_bps=20 * Mbps, queue_packets=100))
    pairs = [(src, (src + 4) % 8) for src in range(8)]
    late = {}
    for spec in ("dmodk", "rps"):
        with DataPlane.load(net, spec) as plane:
            plane.attach()
            with Reordering(net) as watched:
                wanted = [Flow(0.0, src, dst, 400_000) for src, dst in pairs]
                table = flows.run(
                    net, wanted, flows.FlowOptions(deadline_s=30, congestion_control="reno")
                )
            plane.detach()
        assert table.unfinished == 0
        found = watched.table
        assert len(found.flows) == len(pairs)
        # TCP's count is read when the receiver has all, and a sender may repeat packets until it
        # has heard of that.
        assert found.total("retransmitted") <= 1.1 * table.total("retransmissions") + len(pairs)
        assert all(flow.payload_bytes >= 400_000 for flow in found.flows)
        assert found.delay_us(99) > 0
        late[spec] = found.late_fraction
    assert late["dmodk"] == 0
    assert late["rps"] > 0
