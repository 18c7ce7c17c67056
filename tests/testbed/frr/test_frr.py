"""FRR on networks of ours: that its daemons are told the right things, do them, and leave nothing
behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.testbed.network.kills import leftovers
from tests.testbed.network.test_control_queue import counters
from weft.daemons.routing import updown
from weft.testbed.frr.frr import SPIN_S, Frr, frr
from weft.testbed.frr.frr_config import Bgp, Ospf, as_numbers
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure.ping import ping
from weft.testbed.network import clean
from weft.testbed.plan.network_plan import NetworkPlan
from weft.testbed.runs import run
from weft.testbed.runs.run import RunRecord
from weft.topologies import build
from weft.topologies.core.address import dotted

ROOT = Path(__file__).parents[3]
FIXED = ("/var/tmp/frr", "/run/frr")  # where FRR writes if it is not contained


def plan(spec):
    return NetworkPlan(RunRecord("test", 1, Path("/nowhere")), build(spec), None)


def bgp_sessions(routing, node):
    """(own AS, own address, peer's AS, peer's address) of each session that `node` is told of."""
    words = [line.split() for line in routing.lines(node)]
    own_as = next(line[2] for line in words if line[:2] == ["router", "bgp"])
    own = {
        dotted(routing.address(node, end).network ^ 1): routing.address(node, end)
        for end in routing.links(node).values()
    }
    peers = [
        (line[1], line[3]) for line in words if line[0] == "neighbor" and line[2] == "remote-as"
    ]
    return [(own_as, dotted(own[peer].network), peer_as, peer) for peer, peer_as in peers]


@pytest.mark.parametrize("spec", ["fattree:k=4", "clos:n=2,r=3,m=2", "complete:n=4,p=1"])
def test_both_ends_of_a_bgp_session_are_told_the_same(spec):
    routing = Bgp(plan(spec))
    sessions = [session for node in routing.nodes for session in bgp_sessions(routing, node)]
    assert sessions
    assert {(b, b_at, a, a_at) for a, a_at, b, b_at in sessions} == set(sessions)
    assert len(sessions) == sum(routing.sessions(node) for node in routing.nodes)
    assert max(Counter(neighbour for _, neighbour, _, _ in sessions).values()) == 1


@pytest.mark.parametrize("spec", ["fattree:k=4", "fattree:k=8", "clos:n=2,r=3,m=2"])
def test_no_shortest_path_has_an_as_twice_and_equal_paths_have_equally_many(spec):
    topology = build(spec)
    numbers = as_numbers(topology)
    edges = sorted(
        {peer for host in range(topology.servers) for _, peer, _, _ in topology.ports(host)}
    )
    assert len({numbers[edge] for edge in edges}) == len(edges)
    for dst in edges[1:]:
        lengths = set()
        for path in updown.paths(topology, edges[0], dst):
            ases = [numbers[switch] for switch in path]
            assert len(set(ases)) == len(ases)
            lengths.add(len(ases))
        assert len(lengths) == 1


def test_aggregation_switches_of_a_pod_and_core_switches_share_an_as():
    topology = build("fattree:k=4")
    numbers = {
        topology.naming.name(switch): number for switch, number in as_numbers(topology).items()
    }
    assert numbers["a0.0"] == numbers["a0.1"] != numbers["a1.0"]
    assert numbers["c0"] == numbers["c3"]
    assert len(set(numbers.values())) == 8 + 4 + 1


def test_bgp_announces_each_edge_switchs_hosts_and_all_ways_to_them_are_expected():
    routing = Bgp(plan("fattree:k=4"))
    naming = routing.plan.topology.naming
    assert "  network 10.2.1.0/24" in routing.lines(naming.node("e2.1"))
    for name, hops in (("e0.0", {2: 7}), ("a0.0", {1: 2, 2: 6}), ("c1", {1: 8})):
        assert Counter(routing.expected(naming.node(name)).values()) == hops
    assert not any("network 10" in line for line in routing.lines(naming.node("a0.0")))


@pytest.mark.parametrize(
    "routing", [Bgp(plan("fattree:k=4"), 50, 4), Ospf(plan("dcell:n=3,k=1"), 50, 4)]
)
def test_every_neighbour_is_watched_by_bfd_as_often_as_was_asked(routing):
    for node in routing.nodes:
        files = routing.files(node)
        assert set(files) == {"zebra", "bfdd", routing.daemon}
        bfd = " ".join(files["bfdd"].split())
        assert "profile fast transmit-interval 50 receive-interval 50 detect-multiplier 4" in bfd
        # one for each BGP neighbour, one for each OSPF interface
        assert files[routing.daemon].count("bfd profile fast") == len(routing.links(node))


@pytest.mark.parametrize("spec", ["dcell:n=3,k=1", "ficonn:n=4,k=1"])
def test_ends_of_a_link_are_in_one_network_and_no_two_are_alike(spec):
    routing = Ospf(plan(spec))
    topology = routing.plan.topology
    seen = Counter()
    networks = {}
    for node in routing.nodes:
        text = routing.files(node)["ospfd"]
        for port, end in routing.links(node).items():
            address, length = routing.address(node, end)
            seen[address] += 1
            wire = end.peer if topology.is_crossbar(end.peer) else f"link {end.link}"
            assert networks.setdefault(address >> 32 - length, wire) == wire
            kind = "broadcast" if topology.is_crossbar(end.peer) else "point-to-point"
            assert f"interface {end.dev}\n ip ospf area 0\n ip ospf network {kind}\n" in text
            for other, its_port in routing.plan.one_hop(node, port):
                far = routing.address(other, routing.plan.ends[other][its_port])
                assert far.length == length
                assert far.network >> 32 - length == address >> 32 - length
    assert set(seen.values()) == {1}


@pytest.mark.parametrize(
    ("kind", "spec", "words"),
    [
        (Bgp, "dcell:n=3,k=1", "switch fabric of at most 3 tiers"),
        (Bgp, "fattree:n=4,d=2", "at most 3 tiers"),
        (Ospf, "fattree:k=4", "servers route"),
    ],
)
def test_a_network_that_a_protocol_is_not_set_up_for_is_refused(kind, spec, words):
    with pytest.raises(ValueError, match=words):
        kind(plan(spec))


@pytest.mark.kernel
@pytest.mark.frr
@pytest.mark.parametrize(
    ("kind", "spec", "link"), [(Ospf, "dcell:n=3,k=1", "h0-h3"), (Bgp, "clos:n=1,r=2,m=2", "e0-c0")]
)
def test_frr_routes_and_finds_another_way_when_a_link_dies_in_silence(network, kind, spec, link):
    net = network(spec, scheme="none")
    with frr(net, kind(net.plan, 100)) as routed:
        pairs = [
            (src, dst)
            for src in range(net.topology.servers)
            for dst in range(net.topology.servers)
            if src != dst
        ]
        # All routes are there, but those of some routers may just change to shorter ones.
        wait_until("every pair to answer", lambda: not ping(net, pairs, timeout_s=2).lost)
        ends = [net.topology.naming.node(name) for name in link.split("-")]
        assert min(routed.memory_kib()) > 1000
        net.fail(link, silent=True)
        wait_until(
            "both ends miss hellos",
            lambda: all(routed.sessions_up(end) < routed.routing.sessions(end) for end in ends),
        )
        assert kind is Ospf or routed.losses() >= 2
        wait_until("another way", lambda: not ping(net, pairs, timeout_s=1).lost)
        net.restore(link)
        routed.wait_until_converged()
        node = routed.routing.nodes[0]
        end = next(iter(routed.routing.links(node).values()))
        assert counters(net, end.dev).control_packets > 10  # hellos did not queue


@pytest.mark.kernel
@pytest.mark.frr
def test_a_daemon_that_ends_is_told_of_and_none_can_spin_for_ever(network):
    net = network("clos:n=1,r=2,m=1", scheme="none")
    routed = Frr(net, Bgp(net.plan))
    try:
        routed.start()
        for processes in routed.processes.values():
            for process in processes.values():
                limits = Path(f"/proc/{process.pid}/limits").read_text()
                assert f"Max realtime timeout      {SPIN_S * 1_000_000} " in limits
                threads = [int(each) for each in os.listdir(f"/proc/{process.pid}/task")]
                assert {os.sched_getscheduler(thread) for thread in threads} == {os.SCHED_RR}
        assert os.sched_getscheduler(0) == os.SCHED_OTHER
        routed.check()
        victim = routed.processes[routed.routing.nodes[0]]["bfdd"]
        victim.send_signal(signal.SIGXCPU)
        victim.wait(10)
        with pytest.raises(
            OSError, match=r"bfdd of e0 has ended with status -24, after 10 s of processor time"
        ):
            routed.check()
    finally:
        routed.stop()


UP = """
import sys, time
from weft.testbed.frr.frr import frr
from weft.testbed.frr.frr_config import Bgp
from weft.testbed.network.network import RunningNetwork
from weft.topologies import build
net = RunningNetwork.create(build("clos:n=1,r=2,m=1"), None, name=sys.argv[1])
with frr(net, Bgp(net.plan)) as routed:
    print(len(routed.pids()), flush=True)
    time.sleep(1000)
"""


@pytest.mark.kernel
@pytest.mark.frr
def test_what_is_killed_leaves_nothing_that_clean_does_not_find():
    before = {path: sorted(os.listdir(path)) if os.path.isdir(path) else None for path in FIXED}
    name = f"t-{os.urandom(3).hex()}"
    tool = subprocess.Popen(
        [sys.executable, "-c", UP, name], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert int(tool.stdout.readline()) == 9
    (mine,) = [record for record in run.runs() if record.id == name]
    names = mine.journal["namespaces"]
    tool.kill()
    tool.communicate()
    assert len(clean.processes(name, [])) == 9
    assert mine in run.dead_runs()
    clean.remove(mine)
    assert leftovers([mine], [{"namespaces": names}]) == []
    assert {
        path: sorted(os.listdir(path)) if os.path.isdir(path) else None for path in FIXED
    } == before


@pytest.mark.kernel
@pytest.mark.frr
def test_frr_holds_no_namespace_of_another_run(network):
    """Its mount namespaces have copies of all names, which must go when the other run does, or its
    namespaces stay."""
    other = network("clos:n=1,r=2,m=1")
    net = network("clos:n=1,r=2,m=1", scheme="none")
    with frr(net, Bgp(net.plan)) as routed:
        names = other.run.journal["namespaces"]
        mounts = [Path(f"/proc/{pid}/mountinfo") for pid in routed.pids()]
        assert any(names[0] in mount.read_text() for mount in mounts)
        other.down()
        assert not any(name in mount.read_text() for mount in mounts for name in names)
