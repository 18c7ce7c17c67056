"""Steered packets between real servers: `via` says what must happen, the kernel does it."""

from __future__ import annotations

import socket
import subprocess
from contextlib import ExitStack, closing
from itertools import pairwise

import pytest

from weft.daemons.core.actions import SetSourceRewrite
from weft.daemons.core.contract import Refused
from weft.daemons.proxy import routing as proxy
from weft.daemons.routing import route_addresses
from weft.testbed.data_plane import source_rewrite
from weft.testbed.linux import fib, netlink, netns, nft
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure import traceroute
from weft.testbed.measure.ping import ping
from weft.testbed.node_daemon import control
from weft.topologies.core.address import dotted

pytestmark = pytest.mark.kernel


@pytest.fixture
def steered_net(network):
    """A DCell whose servers route all ways and steer nothing yet, and the SourceRewriting of
    each."""
    net = network("dcell:n=4,k=1", scheme="static")
    ccrdn = net.topology.naming.network
    with ExitStack() as stack:
        found = []
        for server in range(net.topology.servers):
            with net.at(server) as routes:
                routes.request(
                    [
                        route(net, server, prefix, hop)
                        for prefix, hop in route_addresses.prefix_routes(ccrdn, server)
                    ]
                )
                with netns.inside(net.netns(server)):
                    kept = stack.enter_context(closing(netlink.Socket()))
                    ways = route_addresses.ways(ccrdn)
                    rewriting = source_rewrite.SourceRewriting(
                        net.plan.address(server), ways, kept, {}
                    )
                    found.append(stack.enter_context(closing(rewriting)))
        yield net, found


def route(net, server, prefix, hop):
    end = net.plan.ends[server][hop.port]
    return fib.route_message(
        prefix, [(end.ifindex, end.dev, net.plan.address(hop.node))], net.plan.address(server)
    )


def steer_by(net, src, dst, copy):
    network = net.topology.naming.network
    p = route_addresses.number(network, proxy.parting(network.t, src, dst).level, copy)
    address = net.topology.naming.address(dst)
    return SetSourceRewrite(address, route_addresses.address(address, p))


def the_path(net, src, dst):
    (route,) = traceroute.trace(net, [(src, dst)])
    return list(route.nodes), route.reason


def test_a_packet_takes_the_way_it_is_steered_and_each_hop_can_be_seen(steered_net):
    net, steering = steered_net
    network = net.topology.naming.network
    for copy in (-1, 1, 2, 3):
        steering[0].set([steer_by(net, 0, 19, copy)] if copy >= 0 else [])
        assert the_path(net, 0, 19) == (proxy.route(network.rule, network.t, 0, 19, copy), None)


def test_only_the_source_steers(steered_net):
    """Server 0 steers its packets for 19; those that pass it go by DR."""
    net, steering = steered_net
    network = net.topology.naming.network
    near = network.peer(0, 1)  # its packets for server 1's cell neighbours come through server 0
    steering[0].set([steer_by(net, 0, 19, 2)])
    assert the_path(net, near, 19)[0] == proxy.route(network.rule, network.t, near, 19, -1)
    assert the_path(net, 19, 0)[0] == proxy.route(network.rule, network.t, 19, 0, -1)


def test_taking_it_back_leads_to_dr(steered_net):
    net, steering = steered_net
    network = net.topology.naming.network
    steering[0].set([steer_by(net, 0, 19, 1)])
    steering[0].set(
        [steer_by(net, 0, 19, 3), SetSourceRewrite(net.topology.naming.address(19), None)]
    )
    assert the_path(net, 0, 19)[0] == proxy.route(network.rule, network.t, 0, 19, -1)


def test_a_full_packet_passes_and_a_longer_one_in_pieces(steered_net):
    net, steering = steered_net
    steering[0].set([steer_by(net, 0, 19, 2)])
    address = dotted(net.topology.naming.address(19))
    for arguments in ("-M do -s 1472", "-s 4000"):
        command = f"ip netns exec {net.plan.namespace(0)} ping -c 1 -W 2 {arguments} {address}"
        done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_used_is_told_once_and_by_its_own_address(steered_net):
    net, steering = steered_net
    list(steering[0].used())
    ping(net, [(0, 19), (0, 7)], count=3)
    assert sorted(event.destination for event in steering[0].used()) == [
        net.topology.naming.address(server) for server in (7, 19)
    ]


def test_a_refused_packet_is_told_by_its_own_address(steered_net):
    net, steering = steered_net
    change = steer_by(net, 0, 19, 2)
    steering[0].set([change])
    path, _ = the_path(net, 0, 19)
    with net.at(path[2]) as routes:
        unreachable = fib.route_message(fib.Prefix(change.rewritten, 32), [], 0)
        routes.request([unreachable])
    table = ping(net, [(0, 19)])
    assert table.lost[0].reasons == [f"host unreachable, says h{path[2]}"]
    assert list(steering[0].refused()) == [Refused(net.topology.naming.address(19))]


def test_udp_gets_through_with_right_checksums_and_errors_reach_their_socket(steered_net):
    net, steering = steered_net
    steering[0].set([steer_by(net, 0, 19, 2)])
    address = dotted(net.topology.naming.address(19))
    with netns.inside(net.netns(19)):
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with netns.inside(net.netns(0)):
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with server, client:
        server.settimeout(2)
        client.settimeout(2)
        server.bind(("", 0))
        client.connect((address, server.getsockname()[1]))
        client.send(b"hello")
        said, who = server.recvfrom(10)
        assert (said, who[0]) == (b"hello", dotted(net.topology.naming.address(0)))
        client.connect((address, 9))
        client.send(b"nobody")
        with pytest.raises(ConnectionRefusedError):
            client.recv(10)


def test_the_kernel_holds_the_rules_that_were_meant(steered_net):
    net, steering = steered_net
    steering[0].set([steer_by(net, 0, 19, 2)])
    listed = subprocess.run(
        ["ip", "netns", "exec", net.plan.namespace(0), "nft", "list", "table", "ip", "weft"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "10.0.4.3 : 67.0.4.3" in listed
    assert "ip daddr set ip daddr map @steered accept" in listed
    assert "type route hook output priority mangle; policy accept;" in listed


def test_a_change_that_is_refused_is_told_in_nfts_words(spare_netns):
    with netns.inside(spare_netns.fd):
        tables = nft.Ruleset()
    with closing(tables):
        tables.change(source_rewrite.rules(10 << 24))
        with pytest.raises(
            netlink.NetlinkError, match=r"delete element ip weft steered .*: No such file"
        ):
            tables.change([source_rewrite.TABLE.element("steered", bytes(4), None)])
        tables.change([source_rewrite.TABLE.element("steered", bytes(4), bytes(4))])
        with pytest.raises(netlink.NetlinkError, match="add map ip nothing"):
            tables.change([nft.NftTable("nothing").map("steered", 1, nft.ADDRESS, nft.ADDRESS)])


def test_loads_are_what_ports_have_sent(network):
    net = network("dcell:n=4,k=0")
    with netns.inside(net.netns(0)):
        routes = netlink.Socket()
        end = net.plan.ends[0][0]
        rewriting = source_rewrite.SourceRewriting(net.plan.address(0), 1, routes, {end.ifindex: 0})
    with closing(routes), closing(rewriting):
        before = routes.link_counters()[end.ifindex][3]
        assert rewriting.loads(100.0) == {0: 0}
        ping(net, [(0, 1)], count=20, interval_ms=1)
        assert rewriting.loads(100.1) == {}
        sent_bits = (routes.link_counters()[end.ifindex][3] - before) * 8
        assert rewriting.loads(102.0) == {0: sent_bits // 2000}


@pytest.mark.parametrize("spec", ["dcell:n=4,k=1", "beta-dcell:n=5,k=1"])
def test_daemons_steer_every_pair_by_the_path_that_they_chose(network, spec):
    net = network(spec, scheme="pr-gpe:idle_s=60,probes_per_s=100")
    ccrdn = net.topology.naming.network
    pairs = [
        (src, dst)
        for src in range(0, net.topology.servers, 5)
        for dst in range(net.topology.servers)
    ]
    pairs = [(src, dst) for src, dst in pairs if proxy.parting(ccrdn.t, src, dst).level]

    def choices():
        numbers = {}
        for src in {src for src, _ in pairs}:
            status = control.status(net.identity.directory, f"h{src}")["protocol"]["destinations"]
            for dst in (dst for at, dst in pairs if at == src):
                if f"h{dst}" not in status or not status[f"h{dst}"]["connected"]:
                    return None
                numbers[src, dst] = status[f"h{dst}"]["proxy"]
        return numbers

    assert not ping(net, pairs, retries=2).lost
    wait_until("answers", choices)
    ping(net, pairs)

    def wrong_pairs():
        before, traces, after = choices(), traceroute.trace(net, pairs), choices()
        if before is None or before != after:
            return None  # a daemon has changed its mind meanwhile
        return [
            trace
            for trace in traces
            if list(trace.nodes)
            != proxy.route(ccrdn.rule, ccrdn.t, trace.src, trace.dst, after[trace.src, trace.dst])
        ] or "all"

    assert wait_until("a moment without changes", wrong_pairs) == "all"


def test_packets_find_a_way_around_a_link_that_died_in_silence(network):
    net = network("dcell:n=4,k=1", scheme="pr-gpi")
    path, _ = the_path(net, 0, 19)
    near, far = next(hop for hop in pairwise(path) if hop[0] // 4 != hop[1] // 4)
    wait_until(
        "steering", lambda: control.status(net.identity.directory, "h0")["protocol"]["answers"]
    )
    net.fail(f"h{near}-h{far}", silent=True)
    wait_until("a way around", lambda: not ping(net, [(0, 19)], timeout_s=0.3).lost)
    assert the_path(net, 0, 19)[0] != path


def test_a_server_whose_daemon_died_steers_as_before(network):
    net = network("dcell:n=4,k=1", scheme="pr-gpi")
    net.fail("h3-h16")
    wait_until("a way around", lambda: not ping(net, [(0, 19)], timeout_s=0.3).lost)
    before = the_path(net, 0, 19)
    control.kill(net.identity.directory, "h0")
    assert not ping(net, [(0, 19)]).lost
    assert the_path(net, 0, 19) == before
