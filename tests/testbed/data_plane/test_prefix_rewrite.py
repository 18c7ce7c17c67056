"""Packets whose addresses say what they carry, between real servers: DFR decides, the kernel does
it."""

from __future__ import annotations

import random
import socket
import subprocess
from contextlib import closing
from itertools import pairwise

import pytest

from weft.daemons.core.actions import SetPrefixRewrite
from weft.daemons.dfr import routing as dfr
from weft.daemons.dfr.routing import Dfr
from weft.daemons.routing.shortest import dead_channels
from weft.testbed.data_plane import prefix_rewrite
from weft.testbed.data_plane.transit_rewrite import TransitRewriting
from weft.testbed.linux import netlink, netns, nft
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure import traceroute
from weft.testbed.measure.ping import ping
from weft.testbed.node_daemon import control
from weft.testbed.traffic.iperf import IperfSpec, iperf
from weft.topologies.core.address import Prefix, dotted
from weft.topologies.core.failures import fail_links

pytestmark = pytest.mark.kernel


def route(topology, settings, down, src, dst):
    network = topology.naming.network
    return dfr.route(network.rule, network.t, settings, down, src, dst)


def visible_path(topology, settings, down, src, dst):
    """Return the part of the computed path that a trace shows.

    It ends at the first server that is passed a second time or that has no path back.
    """
    path, arrives = route(topology, settings, down, src, dst)
    for at, node in enumerate(path):
        if node in path[:at]:
            return tuple(path[: at + 1]), False
        if at and not route(topology, settings, down, node, src)[1]:
            return tuple(path[:at]), False
    return tuple(path), arrives


def wrong(net, settings, links, pairs):
    """The traces of `pairs` that are not as computed with `links` dead.

    Who has no route refuses a packet before it looks at its TTL, and Linux limits such refusals to
    one a second for each source (ip_error() in net/ipv4/route.c): of a path that ends so, what was
    answered must be its beginning.
    """
    topology = net.topology
    down = dead_channels(fail_links(topology, links), topology.naming.network)

    def matches(route):
        nodes, arrives = visible_path(topology, settings, down, route.src, route.dst)
        answered = nodes if arrives else nodes[: len(route.nodes)]
        return (route.nodes, route.reason is None) == (answered, arrives)

    return [route for route in traceroute.trace(net, pairs, timeout_s=0.3) if not matches(route)]


def all_pairs(topology):
    servers = range(topology.servers)
    return [(src, dst) for src in servers for dst in servers if src != dst]


def wait_until_as_computed(net, settings, links, pairs):
    """Daemons that lack a processor take neighbours for dead now and then, and paths change
    meanwhile."""
    wait_until("computed paths", lambda: not wrong(net, settings, links, pairs), every_s=0.2)


@pytest.mark.parametrize(
    ("spec", "b"), [("dcell:n=4,k=1", 0), ("dcell:n=4,k=1", 1), ("beta-dcell:n=4,k=1", 0)]
)
def test_every_pair_takes_the_computed_path_also_with_a_tenth_of_the_links_dead(network, spec, b):
    net = network(spec, link=None, scheme=f"dfr:b={b}")
    pairs, settings = all_pairs(net.topology), Dfr(b=b)
    wait_until_as_computed(net, settings, [], pairs)
    dead = random.Random(3).sample(range(len(net.topology.links)), len(net.topology.links) // 10)
    for link in dead:
        net.fail(net.topology.link_name(link), silent=link % 2 == 0)
    wait_until_as_computed(net, settings, dead, pairs)
    for link in dead:
        net.restore(net.topology.link_name(link))
    wait_until_as_computed(net, settings, [], pairs)


def test_packets_are_rerouted_beyond_the_scope_on_ficonn(network):
    net = network("ficonn:n=4,k=2", link=None, scheme="dfr")
    topology = net.topology
    draw = random.Random(5)
    pairs = draw.sample(all_pairs(topology), 150)
    wait_until_as_computed(net, Dfr(), [], pairs)
    dead = draw.sample(
        [link for link, (_, _, b, _) in enumerate(topology.links.tolist()) if b < 48], 6
    )
    for link in dead:
        net.fail(topology.link_name(link))
    wait_until_as_computed(net, Dfr(), dead, pairs)


@pytest.fixture
def rerouted_net(network):
    """A network in which packets from server 0 to server 19 are rerouted at server 3."""
    net = network("dcell:n=4,k=1", scheme="dfr:b=0")
    net.fail("h3-h16")
    wait_until_as_computed(net, Dfr(b=0), [net.topology.link("h3-h16")], [(0, 19), (19, 0)])
    return net


def test_full_packets_and_longer_ones_and_tcp_and_udp_get_around(rerouted_net):
    address = dotted(rerouted_net.topology.naming.address(19))
    for arguments in ("-M do -s 1472", "-s 4000"):
        command = (
            f"ip netns exec {rerouted_net.plan.namespace(0)} ping -c 1 -W 2 {arguments} {address}"
        )
        done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert iperf(rerouted_net, 0, 19, IperfSpec(seconds=1)).goodput_bps > 1_000_000
    with netns.inside(rerouted_net.netns(0)):
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with netns.inside(rerouted_net.netns(19)):
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with client, server:
        for socket_ in (client, server):
            socket_.settimeout(2)
        server.bind((address, 10))
        # in fragments, with a checksum over all of them
        client.sendto(b"weft" * 1000, (address, 10))
        assert server.recv(5000) == b"weft" * 1000
        client.connect((address, 9))
        client.send(b"nobody listens")
        with pytest.raises(ConnectionRefusedError):
            client.recv(10)


def test_a_packet_that_is_rerouted_again_and_again_is_refused(rerouted_net):
    """Where it reaches its proxy its address is changed, and once more, as that one has no way out
    for it either."""
    topology = rerouted_net.topology
    rerouted_net.fail("h7-h17")
    dead = [topology.link("h3-h16"), topology.link("h7-h17")]
    down = dead_channels(fail_links(topology, dead), topology.naming.network)
    path, arrives = route(topology, Dfr(b=0), down, 0, 19)
    assert (path, arrives) == ([0, 4, 0, 4], False)
    address = dotted(topology.naming.address(19))
    # With one hop more than it may make: who let it go on would have it die of that.
    command = (
        f"ip netns exec {rerouted_net.plan.namespace(0)} ping -c 1 -W 2 -t {len(path)} {address}"
    )

    def says():
        return subprocess.run(command.split(), capture_output=True, text=True, check=False).stdout

    last = dotted(topology.naming.address(path[-1]))
    wait_until(
        "a refusal", lambda: f"From {last} icmp_seq=1 Destination Host Unreachable" in says()
    )


def test_its_own_addresses_are_left_alone(rerouted_net):
    for address in ("127.0.0.1", dotted(rerouted_net.topology.naming.address(0))):
        command = f"ip netns exec {rerouted_net.plan.namespace(0)} ping -c 1 -W 2 {address}"
        assert subprocess.run(command.split(), capture_output=True, check=False).returncode == 0


def test_the_kernel_holds_what_was_meant(rerouted_net):
    listed = subprocess.run(
        [
            "ip",
            "netns",
            "exec",
            rerouted_net.plan.namespace(3),
            "nft",
            "list",
            "table",
            "ip",
            "weft",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "type filter hook input priority mangle; policy accept;" in listed
    status = control.status(rerouted_net.run.directory, "h3")["protocol"]
    assert status["rerouted"] == ["64.0.4.0/24"]


def test_packets_find_a_way_around_a_link_that_died_in_silence(network):
    net = network("dcell:n=4,k=1", scheme="dfr:b=0")
    (route,) = traceroute.trace(net, [(0, 19)])
    near, far = next(hop for hop in pairwise(route.nodes) if hop[0] // 4 != hop[1] // 4)
    net.fail(f"h{near}-h{far}", silent=True)
    wait_until("a way around", lambda: not ping(net, [(0, 19)], timeout_s=0.3).lost)
    assert traceroute.trace(net, [(0, 19)])[0].nodes != route.nodes


def test_a_change_that_is_refused_leaves_all_as_it_was(spare_netns):
    with netns.inside(spare_netns.fd):
        routes = netlink.Socket()
        rewriting = prefix_rewrite.PrefixRewriting(
            10 << 24 | 1, [64, 65], 32, routes, TransitRewriting({(0,): (0, 0)}, {}, {}, 0)
        )
    with closing(routes), closing(rewriting):
        half, all_of_it = Prefix(64 << 24, 9), Prefix(64 << 24, 8)
        rewriting.set([SetPrefixRewrite(half, 65)])
        with pytest.raises(netlink.NetlinkError, match=r"nft add element ip weft octets \{ 64"):
            rewriting.set([SetPrefixRewrite(all_of_it, 65)])
        rewriting.set([SetPrefixRewrite(half, None)])  # and now it is made as well


def test_two_changes_one_after_the_other_are_one():
    """A packet that reached its proxy (80 -> 81) and is rerouted (81 -> 82) carries 82 at once."""
    octets = {
        Prefix(80 << 24, 8): 81,
        Prefix(81 << 24 | 1 << 16, 16): 82,
        Prefix(81 << 24 | 2 << 16, 16): 83,
        Prefix(82 << 24 | 1 << 16, 24): 84,
    }
    assert prefix_rewrite.at_once(octets) == octets | {
        Prefix(80 << 24 | 1 << 16, 16): 82,
        Prefix(80 << 24 | 2 << 16, 16): 83,
        Prefix(81 << 24 | 1 << 16, 24): 84,
    }


def test_as_many_prefixes_as_a_server_may_have_are_changed_at_once(spare_netns):
    with netns.inside(spare_netns.fd):
        tables = nft.Ruleset()
    with closing(tables):
        tables.change(prefix_rewrite.rules(10 << 24, 64))
        for count in (2000, 3, 0):
            octets = {Prefix((64 << 24) + (i << 8), 24): 65 for i in range(count)}
            tables.change(prefix_rewrite.TABLE.prefixes(prefix_rewrite.OCTETS, octets))
