"""Routing daemons on real networks: what they set, what outlives them, whom they listen to."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from weft.daemons.routing import dr
from weft.testbed.linux import clock, fib, netns
from weft.testbed.linux.clock import wait_until
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon import control, daemon_files
from weft.testbed.node_daemon.child_process import rehearse
from weft.testbed.node_daemon.counters import FILE, DaemonCounters
from weft.testbed.node_daemon.sockets import ROUTINE, URGENT
from weft.testbed.traffic.iperf import IperfSpec, iperf
from weft.topologies import build
from weft.topologies.core.address import Prefix
from weft.topologies.core.link import LinkSpec, Mbps

pytestmark = pytest.mark.kernel
LINK = LinkSpec(rate_bps=20 * Mbps, queue_packets=250)
SPEC = "dcell:n=3,k=1"


@pytest.fixture
def routed_net(network: Callable[..., RunningNetwork]) -> RunningNetwork:
    return network(SPEC, LINK, "dr")


def pid(network: RunningNetwork, node: int) -> int:
    return network.rows()[node].pid


@pytest.mark.parametrize("packed", [0, 1, 3])
def test_the_kernels_routes_are_those_of_the_arithmetic(packed):
    made_ns = clock.monotonic_ns()
    network = RunningNetwork.create(build("ficonn:n=4,k=2"), LINK, scheme="dr", packed=packed)
    try:
        rows = network.rows()
        assert len({row.pid for row in rows.values()}) == (packed or len(rows))
        ccrdn = network.topology.naming.network
        for node, row in rows.items():
            wanted = {}
            for prefix, hop in dr.prefix_routes(ccrdn, node):
                wanted[prefix] = (
                    (network.ifindex(node, hop.port), network.plan.address(hop.node)),
                )
            with network.at(node) as there:
                assert fib.routes(there) == wanted
            assert (row.converged, row.routes, row.neighbours_up) == (
                1,
                len(wanted),
                row.neighbours_expected,
            )
            assert made_ns <= row.began_ns <= row.changed_ns <= clock.monotonic_ns()
    finally:
        network.down()


def test_a_dead_link_is_withdrawn_and_comes_back(routed_net):
    for silent in (False, True):
        routed_net.fail("h0-h3", silent=silent)
        wait_until(
            "both ends noticed",
            lambda: [routed_net.rows()[node].neighbours_up for node in (0, 3)] == [2, 2],
        )
        with routed_net.at(0) as there:
            wait_until(
                "h0 refuses",
                lambda: fib.routes(there)[Prefix(routed_net.plan.address(3), 24)] == (),
            )
        routed_net.restore("h0-h3")
        routed_net.wait_until_converged()


def test_routes_that_went_with_a_device_are_back_with_it(network):
    """The daemons decide nothing for a while, and by then the neighbour is back, so that nothing
    has changed for them: but the kernel has removed the routes."""
    net = network("complete:n=4,p=1", None, "bfs:hold_ms=500")

    def kernel_routes():
        with (
            net.at(net.topology.naming.node("r1")) as r1,
            net.at(net.topology.naming.node("r2")) as r2,
        ):
            return fib.routes(r1), fib.routes(r2)

    before = kernel_routes()
    net.fail("r1-r2")
    assert kernel_routes() != before
    net.restore("r1-r2")
    wait_until("they are back", lambda: kernel_routes() == before)


def test_one_neighbour_behind_a_shared_crossbar_dies_and_the_others_stay(routed_net):
    control.kill(routed_net.run.directory, "h1")
    around = {node: row.neighbours_expected for node, row in routed_net.rows().items() if node != 1}
    # both behind the crossbar, and the one over the link
    lost = [0, 2, routed_net.topology.naming.network.peer(1, 1)]
    wait_until(
        "they noticed",
        lambda: all(routed_net.rows()[node].neighbours_up == around[node] - 1 for node in lost),
    )
    others = set(around) - set(lost)
    assert all(routed_net.rows()[node].neighbours_up == around[node] for node in others)


def test_the_routes_of_a_dead_daemon_stay_until_it_is_back_and_sweeps(routed_net):
    with routed_net.at(0) as there:
        before = fib.routes(there)
        control.kill(routed_net.run.directory, "h0")
        assert pid(routed_net, 0) == 0
        assert fib.routes(there) == before
        stale = Prefix(11 << 24, 8)
        end = routed_net.plan.ends[0][1]
        there.request(
            [
                fib.route_message(
                    stale, [(end.ifindex, end.dev, routed_net.plan.address(3))], 10 << 24
                )
            ]
        )
        wait_until(
            "neighbours noticed", lambda: sum(row.losses for row in routed_net.rows().values()) >= 3
        )
        control.start(routed_net.run.directory, "h0")
        routed_net.wait_until_converged()
        wait_until("the stale route is gone", lambda: stale not in fib.routes(there))
        assert fib.routes(there) == before


def test_a_rehearsal_leaves_nothing_and_takes_nothing(routed_net):
    directory, rehearsal = routed_net.run.directory, routed_net.run.directory / "rehearsal"
    assert not rehearsal.exists()
    assert "0 routes of a daemon before it" in (directory / "log" / "h11.log").read_text()
    first = [0, *daemon_files.read_daemons(directory).configs[0].ports[0][1][:2]]
    for node in first:
        control.kill(directory, f"h{node}")
    with ExitStack() as opened:
        there = [opened.enter_context(routed_net.at(node)) for node in first]
        before = [fib.routes(socket_) for socket_ in there]
        daemons = daemon_files.read_daemons(directory)
        rehearse(rehearsal, daemons)
        assert [fib.routes(socket_) for socket_ in there] == before
        for node, socket_ in zip(first, there, strict=True):
            fib.KernelFib(socket_, daemons.interfaces[node]).reconcile()
        rehearse(rehearsal, daemons)
        assert [fib.routes(socket_) for socket_ in there] == [{}] * len(there)
    assert not rehearsal.exists()
    for node in first:
        control.start(directory, f"h{node}")
    routed_net.wait_until_converged()


def test_a_node_has_one_daemon_at_most(routed_net):
    with pytest.raises(ValueError, match=r"h0 has a daemon already, process [0-9]+"):
        control.start(routed_net.run.directory, "h0")
    with pytest.raises(ValueError, match=r"no daemon belongs to 'w0'"):
        control.start(routed_net.run.directory, "w0")


def test_only_who_is_one_hop_away_is_heard(network):
    """A packet that a router might have passed on, whose TTL is not 255, never reaches the
    daemon."""
    routed = network(SPEC, LINK, "dr", authenticated=False)

    def garbage() -> int:
        return int(control.status(routed.run.directory, "h3")["protocol"]["garbage"])

    end = routed.plan.ends[0][1]  # towards h3
    with netns.inside(routed.netns(0)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, end.dev.encode())
        before = garbage()
        for ttl, group in ((254, URGENT), (254, ROUTINE), (255, URGENT)):
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
            for _ in range(5):
                sender.sendto(b"no\0nsense", group)
    wait_until("what came from next door was heard", lambda: garbage() >= before + 5)
    assert garbage() == before + 5


def test_a_full_queue_is_no_reason_to_think_a_neighbour_dead(network):
    # 600 ms of queue, and a neighbour is dead after 310 ms: enough for a daemon that has to wait
    # for its processor.
    net = network(SPEC, LinkSpec(rate_bps=5 * Mbps, queue_packets=250), "dr:hello_ms=100,dead=3")
    iperf(net, 0, 3, IperfSpec(seconds=3, streams=2))
    assert sum(row.losses for row in net.rows().values()) == 0


def test_counters_that_are_not_there_are_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        DaemonCounters(tmp_path / FILE)


def test_a_run_without_daemons_says_so():
    with pytest.raises(ValueError, match=r"no daemon belongs to 'h0': no node of this run has one"):
        daemon_files.Daemons({}, {}).node("h0")
