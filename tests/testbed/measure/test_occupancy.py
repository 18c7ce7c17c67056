"""Queue lengths over time, against queues whose lengths are known; and traffic in slots."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from weft.testbed.linux import clock, netns
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure.kernel_counters import PortCounterReader
from weft.testbed.measure.queues import Occupancies, Occupancy, merge_queues
from weft.testbed.network.network import RunningNetwork
from weft.testbed.plan.network_plan import mac
from weft.testbed.traffic import slotted_udp
from weft.topologies.core.link import Gbps, LinkSpec, Mbps


def test_a_mean_weighs_lengths_by_their_time() -> None:
    occupancy = Occupancy((2, 1, 0, 1), 3)
    assert occupancy.mean_packets == 1.0
    assert occupancy.at_least == [1.0, 0.5, 0.25, 0.25]
    assert merge_queues([occupancy, Occupancy((4, 0, 0, 0), 0)]) == Occupancy((6, 1, 0, 1), 3)


@pytest.mark.kernel
def test_what_waits_is_what_was_seen_to_wait(network: Callable[..., RunningNetwork]) -> None:
    net = network("star:n=2", LinkSpec(rate_bps=8_000, queue_packets=50))
    with Occupancies(net) as watched, PortCounterReader(net) as counters:
        with netns.inside(net.netns(2)):
            sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        sender.bind(("r0-eth1", 0))
        for _ in range(20):  # the first few are sent ahead of the rate, the others wait for seconds
            sender.send(mac(1, 0) + mac(2, 1) + b"\x88\xb5" + bytes(1400))
        sender.close()
        sent_ns = clock.monotonic_ns()  # computing alone takes no virtual time
        wait_until("the clock moves", lambda: clock.monotonic_ns() > sent_ns)
        waiting = counters.snapshot().ports[net.ifindex(2, 1)].waiting_packets
    found = watched.table[2, 1]
    assert found.longest == waiting > 10
    assert sum(found.spent_ns[:waiting]) < sum(found.spent_ns)
    assert watched.table[2, 0].longest == 0
    assert watched.table[2, 0].mean_packets == 0.0


@pytest.mark.kernel
def test_what_was_before_the_beginning_does_not_count(
    network: Callable[..., RunningNetwork],
) -> None:
    net = network("star:n=2", LinkSpec(rate_bps=10 * Mbps, queue_packets=50))
    began_ns = []

    def begin() -> None:
        began_ns.append(clock.monotonic_ns())
        watched.begin()

    with Occupancies(net) as watched, PortCounterReader(net) as counters:
        slotted_udp.run(net, [[1, 0]] * 20, rate_bps=Gbps)
        wait_until(
            "nothing waits",
            lambda: not any(port.waiting_packets for port in counters.snapshot().ports.values()),
        )
        before = watched.read()
        slotted_udp.run(net, [[1, -1]] * 5, rate_bps=10 * Mbps, at_begin=begin)
    ended_ns = clock.monotonic_ns()
    assert before[1, 0].longest > 5 >= watched.table[0, 0].longest
    assert watched.table[1, 0].longest == 0  # which has sent nothing since
    assert all(
        0 < sum(occupancy.spent_ns) <= ended_ns - began_ns[0]
        for occupancy in watched.table.values()
    )


@pytest.mark.kernel
def test_slots_bring_what_they_say(network: Callable[..., RunningNetwork]) -> None:
    net = network("star:n=4", LinkSpec(rate_bps=20 * Mbps, queue_packets=100))
    with PortCounterReader(net) as counters:
        before = counters.snapshot()
        sent = slotted_udp.run(net, [[1, 2, 3, 0], [-1, 0, -1, -1]] * 20, rate_bps=20 * Mbps)
        assert sent.packets == 100

        def sent_by_host() -> list[int]:
            seen = counters.snapshot().since(before).ports
            return [seen[net.ifindex(host, 0)].sent_packets for host in range(4)]

        wait_until("every packet on its way", lambda: sent_by_host() == [20, 40, 20, 20])
