"""The quick reading of counters, against the one that parses everything."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import numpy as np
import pytest

from weft.testbed.linux import netns
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure.kernel_counters import PortCounterReader, PortCounters
from weft.testbed.measure.ping import ping
from weft.testbed.network.network import RunningNetwork
from weft.testbed.observe.port_reader import LEAST, SELDOM, PortReader, PortReading
from weft.testbed.plan.network_plan import mac
from weft.testbed.runs.network_handle import all_pairs
from weft.topologies.core.link import LinkSpec


def compare_counters(
    net: RunningNetwork,
    reader: PortReader,
    counters: PortCounterReader,
    fields: tuple[str, str, str],
) -> PortReading | None:
    """A reading, if nothing was counted meanwhile and the other way of reading tells the same."""
    before = reader.read(everything=True)
    snapshot, after = counters.snapshot().ports, reader.read(everything=True)
    if not all((a == b).all() for a, b in zip(before[:3], after[:3], strict=True)):
        return None
    for row, port in enumerate(reader.ports):
        told: PortCounters = snapshot[net.ifindex(*port)]
        assert [int(column[row]) for column in after[:3]] == [
            getattr(told, field) for field in fields
        ], port
    return after


def fill(net: RunningNetwork) -> None:
    """Send 30 frames from h0 to h3, at a rate at which they stay in the queue."""
    with netns.inside(net.netns(0)):
        sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sender.bind(("h0-eth1", 0))
    for _ in range(30):
        with suppress(OSError):  # the queue is full
            sender.send(mac(3, 1) + mac(0, 1) + b"\x88\xb5" + bytes(1400))
    sender.close()


@pytest.mark.kernel
def test_queues_drops_and_bytes_are_those_that_parsing_finds(
    network: Callable[..., RunningNetwork],
) -> None:
    net = network("dcell:n=3,k=1", LinkSpec(rate_bps=8_000, queue_packets=20))
    reader, fields = PortReader(net, shaped=True), ("sent_bytes", "queue_drops", "waiting_packets")
    ping(net, [(0, 1), (3, 4)], count=1)
    fill(net)
    with PortCounterReader(net) as counters:
        read = wait_until("a quiet moment", lambda: compare_counters(net, reader, counters, fields))
        row = reader.ports.index((0, 1))
        assert read.waiting[row] > 10
        assert read.drops[row] + read.waiting[row] + read.sent_bytes[row] // 1414 == 30
        # a filter more; a device that is set down has no queue any more
        net.fail("h0-h3", silent=True)
        net.fail("h1-h6")
        read = wait_until("a quiet moment", lambda: compare_counters(net, reader, counters, fields))
        assert read.sent_bytes[reader.ports.index((4, 0))] > 0
    reader.close()


@pytest.mark.kernel
def test_links_without_a_rate_tell_what_their_devices_have_sent(
    network: Callable[..., RunningNetwork],
) -> None:
    net = network("dcell:n=3,k=1", None)
    reader = PortReader(net, shaped=False)
    before = reader.read()
    ping(net, all_pairs(net), count=2, interval_ms=1)
    with PortCounterReader(net) as counters:
        after = wait_until(
            "a quiet moment",
            lambda: compare_counters(
                net, reader, counters, ("sent_bytes", "link_drops", "waiting_bytes")
            ),
        )
    assert (after.sent_bytes > before.sent_bytes).all()
    assert not np.any(after.waiting)
    reader.close()


@pytest.mark.kernel
def test_quiet_nodes_are_asked_less_often_and_busy_ones_each_time(
    network: Callable[..., RunningNetwork],
) -> None:
    net = network("dcell:n=3,k=1", LinkSpec(rate_bps=8_000, queue_packets=20))
    reader = PortReader(net, shaped=True)
    fill(net)
    for _ in range(SELDOM + 1):
        reader.read()
    times = np.array([reader.read().at_s for _ in range(2 * SELDOM + 1)])
    asked = (np.diff(times, axis=0) > 0).sum(axis=0)
    busy = np.array([node == 0 for node, _ in reader.ports])
    assert (asked[busy] == 2 * SELDOM).all()
    assert (asked[~busy] == 2).all()
    reader.close()


@pytest.mark.kernel
@pytest.mark.real_clock("computing takes no time there, and so nothing takes too long")
def test_where_all_would_take_too_long_those_that_were_asked_longest_ago_are_asked(
    network: Callable[..., RunningNetwork],
) -> None:
    net = network("dcell:n=3,k=1", LinkSpec(rate_bps=8_000, queue_packets=20))
    reader = PortReader(net, shaped=True, most_cpu_s=1e-9)
    times = [reader.read(everything=True).at_s, reader.read().at_s, reader.read().at_s]
    first, second = (
        {reader.ports[row][0] for row in np.flatnonzero(b > a)} for a, b in pairwise(times)
    )
    assert (len(first), len(second)) == (LEAST, LEAST)
    assert first | second == set(range(2 * LEAST)) == set(range(net.topology.nodes))
    reader.close()
