"""Simulated switches beside the program of eBPF: the same packet leaves by the same port."""

from __future__ import annotations

import pytest

from tests.testbed.data_plane.test_data_plane import SLOW, Fabric, packet
from weft.testbed.data_plane.data_plane import DataPlane
from weft.testbed.network.network import RunningNetwork
from weft.testbed.packets.simulation import simulate
from weft.testbed.plan.network_plan import mac
from weft.topologies import build
from weft.topologies.core.failures import fail_links

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def fabric():
    network = RunningNetwork.create(build("fattree:k=4"), SLOW, scheme="static")
    try:
        with DataPlane.load(network, "dmodk", seed=1) as plane:
            plane.attach()
            yield Fabric(network, plane, plane._program)
    finally:
        network.down()


def ports_in_simulation(topology, spec):
    """Return the port by which each switch sends packets to each host, where a path leads."""
    ports = {}
    hosts = range(topology.servers)
    for src, dst in ((src, dst) for src in hosts for dst in hosts if src != dst):
        used = simulate(topology, spec, [(src, dst, 1000)], transport="ndp").ports
        of_data = (used["bytes"] > 1000) & (used["node"] >= topology.servers)
        for node, port in zip(used["node"][of_data], used["port"][of_data], strict=True):
            assert ports.setdefault((int(node), dst), int(port)) == port
    return ports


@pytest.mark.parametrize("spec", ["dmodk", "ttc", "ttc:delta=0"])
@pytest.mark.parametrize("failed", [[], ["e0.0-a0.1", "a2.0-c0"]])
def test_a_packet_leaves_by_the_same_port(fabric, spec, failed):
    topology = build("fattree:k=4")
    topology = fail_links(topology, [topology.link(name) for name in failed])
    fabric.plane.set_scheme(spec)
    fabric.plane.follow(topology)
    expected = ports_in_simulation(topology, spec)
    assert len(expected) > 20 * topology.switches // 3
    for (switch, dst), number in expected.items():
        before = fabric.plane.counters()
        frame = packet(dst=topology.naming.address(dst), to=mac(switch, 0))
        fabric.put_in(frame, 0, switch)
        now = fabric.plane.counters()
        used = [
            port
            for node, port in now
            if node == switch and now[node, port].packets > before[node, port].packets
        ]
        assert used == [number], (topology.naming.name(switch), topology.naming.name(dst))
