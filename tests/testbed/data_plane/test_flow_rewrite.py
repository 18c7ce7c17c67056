"""Flows between real servers: TAR decides, the kernel does it."""

from __future__ import annotations

import random
import socket
import struct
import subprocess
import sys
from contextlib import closing
from itertools import pairwise

import pytest

from weft.daemons.core.actions import FiveTuple, SetFlowRewrite
from weft.daemons.routing import dr, route_addresses
from weft.daemons.routing.shortest import dead_channels
from weft.daemons.tar import routing as tar
from weft.daemons.tar.flows import ACTIVE_S
from weft.testbed.data_plane import flow_rewrite, transit_rewrite
from weft.testbed.data_plane.flow_rewrite import FlowRewriting
from weft.testbed.data_plane.transit_rewrite import TransitMaps
from weft.testbed.linux import fib, icmp, netlink, netns
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure import traceroute
from weft.testbed.measure.ping import ping
from weft.testbed.node_daemon import control
from weft.testbed.traffic.iperf import IperfSpec, iperf
from weft.topologies.core.address import dotted
from weft.topologies.core.failures import fail_links

pytestmark = pytest.mark.kernel
UDP = socket.IPPROTO_UDP
IP_RECVTTL = 12
TRACED = traceroute.PORTS[0] << 16 | traceroute.PORTS[1]
AROUND = [0, 2, 8, 10, 6, 5]  # from server 0 to 5


def expected_paths(net, links, src, dst):
    """The path of each attempt of the traced flow, None where it does not arrive, with `links`
    dead."""
    network, address = net.topology.naming.network, net.topology.naming.address
    down = dead_channels(fail_links(net.topology, links), network)
    flow = tar.flow_hash(address(src), address(dst), UDP, TRACED)
    paths = []
    for attempt in range(8):
        path, arrives = tar.route(
            network.rule, network.t, down, src, dst, flow=flow, attempt=attempt
        )
        paths.append(path if arrives else None)
    return paths


def flows_of(net, src):
    """By destination, the traced flows as the daemon of `src` has them: (path, attempt)."""
    status = control.status(net.identity.directory, f"h{src}")["protocol"]["flows"]
    return {
        int(flow["destination"][1:]): ([int(name[1:]) for name in flow["path"]], flow["attempt"])
        for flow in status
        if flow["protocol"] == UDP and tuple(flow["ports"]) == traceroute.PORTS
    }


def wrong(net, links, pairs):
    """Return the paths of daemons and packets that are not as computed with `links` dead.

    A trace ends at a server that has no way to answer.
    """
    traces = traceroute.trace(net, pairs, timeout_s=0.3)
    known = {src: flows_of(net, src) for src in {src for src, _ in pairs}}
    attempts = []
    for trace in traces:
        tried = expected_paths(net, links, trace.src, trace.dst)
        path, attempt = known[trace.src].get(trace.dst, ([], 0))
        if not any(tried):
            fits = trace.reason is not None
        else:
            fits = path == tried[attempt] and list(trace.nodes) == path[: len(trace.nodes)]
            fits = fits and (trace.reason is None or trace.reason.startswith("no answer"))
        if not fits:
            attempts.append((trace, path, attempt))
    return attempts


def test_every_flow_takes_the_path_that_its_probe_found_also_with_a_tenth_of_the_links_dead(
    network,
):
    # Links that carry so much that traces are nothing to them: no link is busier than another.
    net = network(
        "ficonn:n=4,k=2", link=None, scheme="tar:idle_s=60,refresh_ms=500,capacity_kbps=1000000000"
    )
    draw = random.Random(2)
    pairs = [tuple(draw.sample(range(net.topology.servers), 2)) for _ in range(100)]
    assert not [route for route in traceroute.trace(net, pairs) if route.reason]
    wait_until("probed paths", lambda: not wrong(net, [], pairs), every_s=0.2)
    dead = draw.sample(range(len(net.topology.links)), len(net.topology.links) // 10)
    for link in dead:
        net.fail(net.topology.link_name(link), silent=link % 2 == 0)
    wait_until("paths around what is dead", lambda: not wrong(net, dead, pairs), every_s=0.2)


def test_a_flow_that_goes_on_is_shown_at_least_twice_while_it_counts_as_active():
    assert 2 * flow_rewrite.AGAIN_MS < 1000 * ACTIVE_S


def test_pings_tcp_and_long_packets_get_through(network):
    net = network("ficonn:n=4,k=1", scheme="tar")
    servers = range(net.topology.servers)
    assert not ping(net, [(src, dst) for src in servers for dst in servers if src != dst]).lost
    assert iperf(net, 0, 11, IperfSpec(seconds=1)).goodput_bps > 1_000_000
    address = dotted(net.topology.naming.address(11))
    for arguments in (f"-M do -s 1472 {address}", f"-s 4000 {address}", "127.0.0.1"):
        command = f"ip netns exec {net.plan.namespace(0)} ping -c 1 -W 2 {arguments}"
        done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def tables(network):
    """A FiConn whose servers route by DR and to each neighbour, and the FlowRewriting of each."""
    net = network("ficonn:n=4,k=1", scheme="static")
    ccrdn = net.topology.naming.network
    rewritings, transit_maps = [], TransitMaps(transit_rewrite.ensure(net))
    for server in range(net.topology.servers):
        neighbours = {
            node: port for port, nodes in net.topology.neighbours(server).items() for node in nodes
        }
        routes = [
            (route_addresses.with_octets(own, 64), hop)
            for own, hop in dr.prefix_routes(ccrdn, server)
        ]
        routes += [
            (route_addresses.all_addresses(65 + node), (port, node))
            for node, port in neighbours.items()
        ]
        with net.at(server) as routes_socket:
            routes_socket.request([route(net, server, prefix, *hop) for prefix, hop in routes])
        with netns.inside(net.netns(server)):
            rewritings.append(
                FlowRewriting(
                    net.plan.address(server), netlink.Socket(), {}, transit_maps.at(server)
                )
            )
    yield net, rewritings
    transit_maps.close()
    for rewriting in rewritings:
        rewriting._routes.close()
        rewriting.close()


def route(net, server, prefix, port, node):
    end = net.plan.ends[server][port]
    return fib.route_message(
        prefix, [(end.ifindex, end.dev, net.plan.address(node))], net.plan.address(server)
    )


def let(net, tables, path, protocol, ports):
    """Let that flow from the first to the last of `path` take it."""
    address = net.topology.naming.address
    flow = FiveTuple(address(path[0]), address(path[-1]), protocol, ports)
    for server, onward in pairwise(path):
        tables[server].set([SetFlowRewrite(flow, 65 + onward)])
    return flow


def test_a_flow_takes_its_path_and_others_of_the_same_servers_do_not(tables):
    net, rewritings = tables
    straight = [0, 4, 5]
    flow = let(net, rewritings, AROUND, UDP, TRACED)

    def traced_path(ports=traceroute.PORTS):
        return list(traceroute.trace(net, [(0, 5)], ports=ports)[0].nodes)

    assert traced_path() == AROUND
    assert traced_path((40000, traceroute.PORTS[1])) == straight
    rewritings[0].set([SetFlowRewrite(flow, None)])
    assert traced_path() == straight


def test_flows_in_use_are_told_once_with_their_ports_if_they_have_any(tables):
    net, rewritings = tables
    list(rewritings[0].used())
    address = net.topology.naming.address
    with netns.inside(net.netns(0)):
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with closing(client):
        client.bind(("", 40000))
        for _ in range(3):
            client.sendto(b"x", (dotted(address(5)), 50000))
    ping(net, [(0, 5)], count=3)
    assert sorted(event.flow for event in rewritings[0].used()) == [
        FiveTuple(address(0), address(5), socket.IPPROTO_ICMP, 0),
        FiveTuple(address(0), address(5), UDP, 40000 << 16 | 50000),
    ]
    assert list(rewritings[4].used()) == []  # it passes them on


def test_the_kernel_holds_the_rules_that_were_meant(tables):
    net, rewritings = tables
    let(net, rewritings, [0, 4, 5], UDP, TRACED)
    listed = subprocess.run(
        ["ip", "netns", "exec", net.plan.namespace(0), "nft", "list", "table", "ip", "weft"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "type ipv4_addr . ipv4_addr . inet_proto . mark" in listed
    assert "10.0.0.0 . 64.0.1.1 . udp" in listed


@pytest.mark.parametrize(("size", "options"), [(1, b""), (1000, b"\1\1\1\0"), (4000, b"")])
def test_what_a_flow_carries_comes_whole_also_with_options_and_in_fragments(tables, size, options):
    """The kernel computes the checksum of what leaves by a port without offloads, and whoever takes
    it checks it."""
    net, rewritings = tables
    let(net, rewritings, AROUND, UDP, 40000 << 16 | 50000)
    address = net.topology.naming.address
    with netns.inside(net.netns(0)):
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with netns.inside(net.netns(5)):
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with client, server:
        client.bind((dotted(address(0)), 40000))
        client.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, options)
        server.bind((dotted(address(5)), 50000))
        server.setsockopt(socket.IPPROTO_IP, IP_RECVTTL, 1)
        server.settimeout(2)
        client.sendto(bytes(size), (dotted(address(5)), 50000))
        data, ancillary, _, who = server.recvmsg(5000, 64)
    ttl = int.from_bytes(ancillary[0][2], sys.byteorder)
    assert (data, who) == (bytes(size), (dotted(address(0)), 40000))
    assert 64 - ttl == len(AROUND) - 2


def test_a_checksum_that_the_sender_computed_is_right_at_the_end(tables):
    net, rewritings = tables
    let(net, rewritings, AROUND, UDP, 40000 << 16 | 50000)
    address = net.topology.naming.address
    with netns.inside(net.netns(0)):
        raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, UDP)
    with netns.inside(net.netns(5)):
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with raw, server:
        server.bind((dotted(address(5)), 50000))
        server.settimeout(2)
        for text in (b"even", b"another"):
            head = struct.pack(">HHH", 40000, 50000, 8 + len(text))
            pseudo = struct.pack(">IIHH", address(0), address(5), UDP, 8 + len(text))
            check = icmp.checksum(pseudo + head + b"\0\0" + text + bytes(len(text) % 2))
            raw.sendto(head + struct.pack(">H", check) + text, (dotted(address(5)), 0))
            assert server.recv(100) == text
        raw.sendto(head + struct.pack(">H", check ^ 1) + text, (dotted(address(5)), 0))
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.recv(100)
