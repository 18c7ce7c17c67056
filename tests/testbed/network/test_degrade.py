"""A link's rate, changed and read back."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from weft.testbed.linux import netns, tc
from weft.testbed.measure.kernel_counters import PortCounterReader
from weft.testbed.network.impair import one_at_a_time, set_rate
from weft.testbed.network.network import RunningNetwork
from weft.testbed.plan.network_plan import mac
from weft.topologies.core.link import LinkSpec, Mbps


@pytest.mark.kernel
def test_a_link_carries_less_in_both_directions_and_others_do_not(
    network: Callable[..., RunningNetwork],
) -> None:
    net = network("clos:n=1,r=2,m=2", LinkSpec(rate_bps=20 * Mbps, queue_packets=100))
    set_rate(net, "e0-c1", 4 * Mbps)
    for node, port, expected in [(2, 2, 4), (5, 0, 4), (2, 1, 20), (5, 1, 20)]:
        with net.at(node) as socket:
            shape = tc.shapes(socket)[net.ifindex(node, port)]
        assert shape.rate_bps == pytest.approx(expected * Mbps, abs=8)
        assert shape.queue_packets == 100
    with pytest.raises(ValueError, match="no link joins e0 and e1"):
        set_rate(net, "e0-e1", Mbps)


@pytest.mark.kernel
def test_a_rate_that_cannot_be_reported_is_not_set(network: Callable[..., RunningNetwork]) -> None:
    net = network("clos:n=1,r=2,m=2", LinkSpec(rate_bps=20 * Mbps, queue_packets=100))
    with pytest.raises(ValueError, match="treats degraded links as any other"):
        net.degrade("e0-c1", 4 * Mbps, tell=True)
    with net.at(2) as socket:
        assert tc.shapes(socket)[net.ifindex(2, 2)].rate_bps == pytest.approx(20 * Mbps, abs=8)


@pytest.mark.kernel
def test_a_link_that_sends_one_at_a_time_makes_the_second_packet_wait(
    network: Callable[..., RunningNetwork],
) -> None:
    net = network("star:n=2", LinkSpec(rate_bps=8_000, queue_packets=100))
    one_at_a_time(net)
    with netns.inside(net.netns(2)):
        sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sender.bind(("r0-eth1", 0))
    for _ in range(5):
        sender.send(mac(1, 0) + mac(2, 1) + b"\x88\xb5" + bytes(1400))
    sender.close()
    with PortCounterReader(net) as counters:
        assert counters.snapshot().ports[net.ifindex(2, 1)].waiting_packets == 4
