import subprocess
from itertools import pairwise

import pytest

from weft.daemons.routing.dr import route
from weft.testbed.measure.traceroute import ForwardingTables, Trace, differences, fib_paths, trace
from weft.testbed.runs.network_handle import all_pairs
from weft.topologies.core.link import LinkSpec, Mbps
from weft.topologies.recursive.ccrdn import DCELL, Ccrdn

NETWORK = Ccrdn(DCELL, 4, 1)


def dr_path(src: int, dst: int) -> list[int]:
    return route(NETWORK.rule, NETWORK.t, src, dst)


class Tables(ForwardingTables):
    """Forwarding tables out of a dictionary."""

    def __init__(self, tables: dict[int, tuple[int, ...]]) -> None:
        self.tables = tables

    def next_hops(self, node: int, dst: int) -> tuple[int, ...]:
        return self.tables[node]


def test_every_equal_cost_path_is_listed():
    assert fib_paths(Tables({0: (1, 2), 1: (3,), 2: (3, 4), 3: (5,), 4: (5,)}), 0, 5) == [
        (0, 1, 3, 5),
        (0, 2, 3, 5),
        (0, 2, 4, 5),
    ]


def test_differences_are_told_in_names():
    traces = [
        Trace(0, 2, (0, 1, 2), None),
        Trace(0, 3, (0, 1), "no answer from hop 2"),
        Trace(0, 4, (0, 4), None),
    ]
    lines = differences(traces, lambda src, dst: [src, 1, dst], "h{}".format)
    assert lines == [
        "h0 -> h3: takes h0 h1 (no answer from hop 2), computed h0 h1 h3",
        "h0 -> h4: takes h0 h4, computed h0 h1 h4",
    ]


@pytest.mark.kernel
def test_packets_and_tables_agree_with_dr_for_every_pair(network):
    net = network("dcell:n=4,k=1")
    pairs = all_pairs(net)
    traces = trace(net, pairs)
    assert [(result.src, result.dst) for result in traces] == pairs
    assert differences(traces, dr_path, net.topology.naming.name) == []
    with ForwardingTables(net) as fib:
        assert all(fib_paths(fib, *pair) == [tuple(dr_path(*pair))] for pair in pairs)


@pytest.mark.kernel
def test_in_a_fabric_packets_take_one_of_the_paths_of_the_tables_by_their_ports(network):
    net = network("fattree:k=4")
    pairs = all_pairs(net)
    seen: dict[tuple[int, int], set[tuple[int, ...]]] = {pair: set() for pair in pairs}
    for source in (1000, 2000, 3000, 4000):
        first, second = (trace(net, pairs, ports=(source, 33434)) for _ in range(2))
        assert first == second
        assert not [result for result in first if result.reason]
        for result in first:
            seen[result.src, result.dst].add(result.nodes)
    with ForwardingTables(net) as fib:
        every = {pair: set(fib_paths(fib, *pair)) for pair in pairs}
    assert all(seen[pair] <= every[pair] for pair in pairs)
    assert {len(paths) for paths in every.values()} == {1, 2, 4}
    assert any(len(paths) > 1 for paths in seen.values())


@pytest.mark.kernel
def test_a_path_over_a_silent_link_ends_where_it_begins(network):
    net = network("dcell:n=4,k=1", LinkSpec(rate_bps=100 * Mbps, queue_packets=50))
    net.fail("h0-h4", silent=True)
    traces = trace(net, all_pairs(net), timeout_s=0.3, retries=1)
    for result in traces:
        path = dr_path(result.src, result.dst)
        before = next((i for i, hop in enumerate(pairwise(path)) if set(hop) == {0, 4}), None)
        if before is None:
            assert (result.nodes, result.reason) == (tuple(path), None)
        else:
            assert (result.nodes, result.reason) == (
                tuple(path[: before + 1]),
                f"no answer from hop {before + 1}",
            )


@pytest.mark.kernel
def test_loops_and_missing_routes_are_told(network):
    net = network("dcell:n=4,k=1")

    def change(server: int, *words: str) -> None:
        subprocess.run(["ip", "-n", net.plan.namespace(server), "route", *words], check=True)

    # From h0 to h17 the way is h3, h16; let h16 send it back to h3.
    change(
        16,
        "replace",
        "10.0.4.1/32",
        "via",
        "10.0.0.3",
        "dev",
        "h16-eth1",
        "onlink",
        "src",
        "10.0.4.0",
    )
    change(2, "del", "10.0.3.0/24")
    looping, lost, refused = trace(net, [(0, 17), (0, 13), (2, 13)])
    assert (looping.nodes, looping.reason) == ((0, 3, 16, 3), "came back to h3")
    assert (lost.nodes, lost.reason) == ((0, 2), "network unreachable, says h2")
    assert (refused.nodes, refused.reason) == ((2,), "network is unreachable, says h2 itself")
    with ForwardingTables(net) as fib:
        with pytest.raises(ValueError, match="h0 h3 h16 h3"):
            fib_paths(fib, 0, 17)
        with pytest.raises(
            OSError, match=r"route get fibmatch 10\.0\.3\.1: Network is unreachable"
        ):
            fib_paths(fib, 2, 13)


@pytest.mark.kernel
@pytest.mark.real_clock("at one instant more answers wait than the kernel's socket for ICMP holds")
def test_one_router_answers_any_number_of_probes(network):
    """1,560 at once, where the kernel's own limit is 1,000 a second for a namespace, or for all of
    them."""
    net = network("star:n=40")
    traces = trace(net, all_pairs(net), retries=0)
    assert not [result for result in traces if result.reason]
    assert {len(result.nodes) for result in traces} == {3}
