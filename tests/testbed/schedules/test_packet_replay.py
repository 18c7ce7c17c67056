"""A schedule over packets takes at least what its links need, and little more."""

from __future__ import annotations

from weft.testbed.schedules.collectives import collective
from weft.testbed.schedules.packet_replay import replay
from weft.testbed.schedules.task_graph import TaskGraph
from weft.testbed.traffic.packet_network import (
    DCTCP,
    HASH,
    PacketLink,
    PacketNetwork,
    TcpParameters,
    shortest,
)
from weft.topologies import build


def test_a_ring_keeps_its_links_busy() -> None:
    topology, size_bytes = build("star:n=8"), 8_000_000
    link = PacketLink(
        rate_bps=10**9,
        delay_ns=1_000,
        trim_bytes=0,
        header_bytes=0,
        queue_packets=100,
        mark_packets=33,
    )
    tcp = TcpParameters(jiffy_ns=10**6, rto_min_ns=10**7, frame_bytes=1514, ecn=DCTCP)
    net = PacketNetwork(topology, link, tcp, shortest(topology, HASH), 1)
    graph = TaskGraph(collective("all-reduce", "ring", 8, size_bytes), range(8), 2)
    progress = replay(net, graph, 10**10)
    assert progress.left == 0
    bound_ns = 2 * 7 / 8 * size_bytes * 8 * 1514 / 1448
    for times_ns in progress.times_ns():
        assert bound_ns < min(times_ns) <= max(times_ns) < 1.1 * bound_ns
