"""A schedule over packets takes at least what its links need, and little more."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from weft.testbed.packets.network import (
    DCTCP,
    HASH,
    SPRAY,
    PacketLink,
    PacketNetwork,
    TcpParameters,
    shortest,
)
from weft.testbed.schedules.collectives import collective
from weft.testbed.schedules.tasks import Progress, TaskGraph, replay_packets
from weft.topologies import build
from weft.topologies.core.placement import place_ranks


def ring_progress(spec: str, hosts: Sequence[int], size_bytes: int, choice: int) -> Progress:
    """Return the progress of two rings after ten seconds."""
    topology = build(spec)
    link = PacketLink(
        rate_bps=10**9,
        delay_ns=1_000,
        trim_bytes=0,
        header_bytes=0,
        queue_packets=100,
        mark_packets=33,
    )
    tcp = TcpParameters(jiffy_ns=10**6, rto_min_ns=10**7, frame_bytes=1514, ecn=DCTCP)
    net = PacketNetwork(topology, link, tcp, shortest(topology, choice), 1)
    graph = TaskGraph(collective("all-reduce", "ring", 8, size_bytes), hosts, 2)
    return replay_packets(net, graph, 10**10)


def test_a_ring_keeps_its_links_busy() -> None:
    size_bytes = 8_000_000
    progress = ring_progress("star:n=8", range(8), size_bytes, HASH)
    assert progress.left == 0
    bound_ns = 2 * 7 / 8 * size_bytes * 8 * 1514 / 1448
    for times_ns in progress.times_ns():
        assert bound_ns < min(times_ns) <= max(times_ns) < 1.1 * bound_ns


@pytest.mark.parametrize("seed", range(6))
def test_a_ring_over_sprayed_packets_ends(seed: int) -> None:
    """Packets that are taken for lost, and are not, leave a connection able to send."""
    hosts = place_ranks(build("fattree:k=4"), 8, placement="random", seed=seed)
    assert ring_progress("fattree:k=4", hosts, 1 << 22, SPRAY).left == 0
