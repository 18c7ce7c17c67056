"""Packets for unassigned addresses do not loop: they make few hops."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress

import pytest

from weft.testbed.linux import netns
from weft.testbed.measure.kernel_counters import PortCounterReader
from weft.testbed.network.network import RunningNetwork
from weft.topologies.core.link import LinkSpec, Mbps

pytestmark = pytest.mark.kernel
PACKETS = 20
# of each, where the longest way through these networks has 6; round and round it is 64
MOST_HOPS = 10
HELLO_MS = 1000  # seldom: each counts as a hop
ADDRESSES = ("10.0.0.7", "10.0.9.1", "10.0.1.99", "10.9.0.0", "10.200.0.1", "10.255.255.255")


@pytest.mark.parametrize(
    ("topology", "scheme"),
    [
        ("fattree:k=4", "static"),
        ("fattree:k=4", "ecmp"),
        ("fattree:k=4", "rr"),
        ("fattree:k=4", "lbsp"),
        ("clos:n=2,r=2,m=2", "static"),
        ("dcell:n=3,k=1", "dr"),
        ("dcell:n=3,k=1", "dfr"),
        ("dcell:n=3,k=1", "pr-gpi"),
        ("ficonn:n=4,k=1", "tar"),
    ],
)
def test_packets_for_nobody_do_not_go_round(
    network: Callable[..., RunningNetwork], topology: str, scheme: str
) -> None:
    spec = scheme if scheme == "static" else f"{scheme}:hello_ms={HELLO_MS}"
    net = network(topology, LinkSpec(rate_bps=100 * Mbps, queue_packets=1000), spec)
    with PortCounterReader(net) as counters:
        before = counters.snapshot()
        with netns.inside(net.netns(0)):
            sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with sender:
            for address in ADDRESSES:
                for _ in range(PACKETS):
                    with suppress(OSError):  # refused at once, or an answer to one before
                        sender.sendto(bytes(100), (address, 9))
        forwarded = counters.snapshot().since(before)
        total = sum(port.sent_packets for port in forwarded.ports.values())
    hellos = 4 * 2 * len(net.topology.links)  # a few at each port
    assert total < PACKETS * len(ADDRESSES) * MOST_HOPS + hellos
