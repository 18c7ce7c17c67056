"""Valiant and UGAL on real switches: packet in, packet out, its waypoint, and pings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.testbed.data_plane.test_data_plane import SLOW, STOLEN, Fabric, checksum, packet
from weft.daemons.routing import shortest
from weft.testbed.data_plane.data_plane import DataPlane
from weft.testbed.measure.ping import ping
from weft.testbed.network.network import RunningNetwork
from weft.testbed.plan.network_plan import mac
from weft.testbed.runs.network_handle import all_pairs
from weft.topologies import build
from weft.topologies.core.link import LinkSpec, Mbps
from weft.topologies.core.topology import Topology

pytestmark = pytest.mark.kernel
NETWORK = "dragonfly:p=1"  # three groups of two, a ring of six switches
DONT_FRAGMENT = 0x4000
FAST = LinkSpec(rate_bps=50 * Mbps, queue_packets=250)


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    """Return a network with empty queues, where packets stay in them."""
    network = RunningNetwork.create(build(NETWORK), SLOW, scheme="static")
    try:
        with DataPlane.load(network, "rps", seed=1) as plane:
            plane.attach()
            assert plane._program is not None
            yield Fabric(network, plane, plane._program)
    finally:
        network.down()


def onward(topology: Topology, switch: int, node: int) -> set[int]:
    """Return the ports of `switch` on shortest paths to `node`."""
    following = shortest.next_hops(topology.adjacency, switch)[node]
    return {port for port, peer, _, _ in topology.ports(switch) if peer in following}


def send(
    fabric: Fabric, switch: int, port: int, dst: int, id_: int, fragment: int = DONT_FRAGMENT
) -> tuple[int, int]:
    """Put a packet for host `dst` in at a port; return the output port and the identification."""
    address = fabric.network.topology.naming.address(dst)
    frame = packet(dst=address, to=mac(switch, port), id_=id_, fragment=fragment)
    action, got = fabric.put_in(frame, port, switch)
    assert action == STOLEN
    assert checksum(got[14:34]) == 0
    (out,) = (
        number
        for number, peer, far, _ in fabric.network.topology.ports(switch)
        if got[:12] == mac(peer, far) + mac(switch, number)
    )
    return out, int.from_bytes(got[18:20], "big")


def test_a_packet_from_a_host_takes_each_waypoint_equally_often(fabric: Fabric) -> None:
    topology, src, dst = fabric.network.topology, 0, 5
    first, last = (topology.ports(host)[0][1] for host in (src, dst))
    fabric.plane.set_scheme("valiant")
    before = fabric.plane.counters()
    sent, waypoints = 1200, Counter()
    for _ in range(sent):
        out, waypoint = send(fabric, first, 0, dst, id_=4711)
        waypoints[topology.servers + waypoint - 1] += 1
        assert out in onward(topology, first, topology.servers + waypoint - 1)
    others = set(range(topology.servers, topology.nodes)) - {first, last}
    assert waypoints.keys() == others
    expected = sent / len(others)
    assert sum((n - expected) ** 2 / expected for n in waypoints.values()) < 16.3  # p = 0.001
    now = fabric.plane.counters()
    assert sum(now[where].moved - before[where].moved for where in now) == sent


@pytest.mark.parametrize("scheme", ["valiant", "ugal", "valiant:gap_us=500"])
def test_switches_on_the_way_lead_to_the_waypoint_and_then_to_the_destination(
    fabric: Fabric, scheme: str
) -> None:
    topology = fabric.network.topology
    fabric.plane.set_scheme(scheme)
    switches = range(topology.servers, topology.nodes)
    for switch in switches:
        port = next(port for port, peer, _, _ in topology.ports(switch) if peer in switches)
        for dst in range(topology.servers):
            for waypoint in (*switches, topology.nodes + 3):
                tag = waypoint - topology.servers + 1
                out, left = send(fabric, switch, port, dst, id_=tag)
                on_its_way = waypoint in switches and waypoint != switch
                assert left == (tag if on_its_way else 0)
                assert out in onward(topology, switch, waypoint if on_its_way else dst)


def test_a_packet_that_may_be_fragmented_takes_no_detour(fabric: Fabric) -> None:
    topology = fabric.network.topology
    fabric.plane.set_scheme("valiant")
    for port, *_ in topology.ports(topology.servers):
        for id_ in (0, 2, 0xFFFF):
            out, left = send(fabric, topology.servers, port, 5, id_, fragment=0)
            assert out in onward(topology, topology.servers, 5)
            assert left == id_


def test_a_packet_to_a_host_of_the_same_switch_is_delivered(fabric: Fabric) -> None:
    topology = fabric.network.topology
    for scheme in ("valiant", "ugal"):
        fabric.plane.set_scheme(scheme)
        assert send(fabric, topology.servers + 2, 0, 2, id_=7) == (0, 0)


def test_ugal_leaves_a_longer_queue_for_waypoints_behind_other_ports(fabric: Fabric) -> None:
    """Let packets wait at the port of the only shortest path, of two hops."""
    topology = fabric.network.topology
    first, switches = topology.servers, range(topology.servers, topology.nodes)
    far = shortest.distances(topology.adjacency, first)
    last = next(node for node in switches if far[node] == 2)
    (direct,) = onward(topology, first, last)
    dst = next(peer for _, peer, _, _ in topology.ports(last) if peer < topology.servers)
    fabric.plane.set_scheme("ugal")
    assert send(fabric, first, 0, dst, id_=9) == (direct, 0)
    fabric.fill(direct, 70, node=first)
    detours = {
        (port, node - topology.servers + 1)
        for node in set(switches) - {first, last}
        for port in onward(topology, first, node) - {direct}
    }
    assert detours
    for scheme, expected in (("ugal", detours), ("ugal:delta=10000", set()), ("ugal:d=4", detours)):
        fabric.plane.set_scheme(scheme)
        chosen = {send(fabric, first, 0, dst, id_=9) for _ in range(25 if expected else 5)}
        assert chosen - {(direct, 0)} == expected


@pytest.mark.parametrize("spec", ["slimfly:q=3,p=1", "polarfly:q=3,p=1", "hyperx:l=2,s=3,p=1"])
def test_daemons_routes_carry_detours_around_a_failed_link(
    network: Callable[..., RunningNetwork], spec: str
) -> None:
    net = network(spec, FAST, scheme="valiant")
    before = detour_count(net)
    assert ping(net, all_pairs(net), count=1, retries=2).lost == ()
    assert detour_count(net) > before
    link = next(link for link in range(len(net.topology.links)) if net.topology.level[link] > 0)
    net.fail(net.topology.link_name(link))
    assert ping(net, all_pairs(net), count=1, retries=3).lost == ()


def detour_count(net: RunningNetwork) -> int:
    """Return how many packets have been sent to a waypoint."""
    with DataPlane.open(net) as plane:
        return sum(counts.moved for counts in plane.counters().values())
