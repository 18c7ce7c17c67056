"""Lower bounds: against all cuts of small networks, and against times that follow by hand."""

from __future__ import annotations

from itertools import combinations

import pytest

from weft.experiments.collectives import message_cost
from weft.experiments.collectives.message_cost import FrameCost
from weft.testbed.schedules.collectives import collective
from weft.testbed.schedules.tasks import TaskGraph
from weft.topologies import build
from weft.topologies.core.topology import Topology

COST = FrameCost(rate_bps=10**9, delay_ns=1000, frame_bytes=1000, header_bytes=50)


def test_frames_have_headers() -> None:
    assert COST.frames_bytes(1) == 51
    assert COST.frames_bytes(950) == 1000
    assert COST.frames_bytes(951) == 951 + 100


def test_a_message_alone_takes_its_links() -> None:
    """One of two ranks sends 100 bytes over the two links of a star."""
    graph = TaskGraph(collective("broadcast", "binomial", 2, 100), range(2))
    one_link_ns = 8 * 150
    expected_ns = 2 * (one_link_ns + 1000)
    assert message_cost.alpha_beta_ns(build("star:n=2"), graph, COST) == expected_ns


def test_the_busiest_host_limits_messages_at_once() -> None:
    graph = TaskGraph(collective("all-to-all", "linear", 8, 8 * 95_000), range(8))
    bound_ns = message_cost.alpha_beta_ns(build("star:n=8"), graph, COST)
    assert bound_ns == 7 * 8 * 100_000


def crossing_ns(topology: Topology, graph: TaskGraph, inside: set[int]) -> float:
    """Return the time of the messages that leave or enter `inside`."""
    links = sum((a in inside) != (b in inside) for a, _, b, _ in topology.links.tolist())
    sent = [0, 0]
    for task in graph.tasks:
        if task.size_bytes and (task.src in inside) != (task.dst in inside):
            sent[task.src in inside] += COST.frames_bytes(task.size_bytes)
    return COST.sending_ns(max(sent)) / links


@pytest.mark.parametrize("spec", ["clos:n=3,r=2,m=1", "dcell:n=3,k=1", "complete:n=3,p=2"])
def test_the_cut_is_one_and_nearly_the_worst(spec: str) -> None:
    """Enumerate all cuts that leave at most half of the nodes on one side."""
    topology = build(spec)
    ranks = topology.servers
    graph = TaskGraph(collective("all-to-all", "pairwise", ranks, 1000 * ranks), range(ranks))
    cuts_ns = [
        crossing_ns(topology, graph, set(inside))
        for size in range(1, topology.nodes // 2 + 1)
        for inside in combinations(range(topology.nodes), size)
    ]
    bound_ns = message_cost.cut_ns(topology, graph, COST)
    assert any(abs(bound_ns - each_ns) < 1 for each_ns in cuts_ns)
    assert bound_ns > 0.8 * max(cuts_ns)
