"""Simulated switches beside the program of eBPF: the same packet leaves by the same port."""

from __future__ import annotations

import pytest

from tests.testbed.data_plane.test_data_plane import SLOW, Fabric, packet
from weft.testbed.data_plane.data_plane import DataPlane
from weft.testbed.network.network import RunningNetwork
from weft.testbed.packets.simulation import PacketFlows, Simulation, simulate
from weft.testbed.packets.switching import Switching
from weft.testbed.packets.transport import ALL, transport
from weft.testbed.plan.network_plan import mac
from weft.topologies import build
from weft.topologies.core.failures import fail_links
from weft.topologies.core.link import Gbps, LinkSpec

pytestmark = pytest.mark.kernel
LINK = LinkSpec(rate_bps=Gbps, queue_packets=1000)


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


@pytest.mark.parametrize("spec", ["dmodk", "ttc", "ttc:delta=0", "lbsp"])
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


@pytest.mark.parametrize("start", ["modulo", "destination"])
def test_a_flow_that_daemons_place_begins_at_the_same_port(start):
    """Put a packet of each pair in at its leaf, and compare with the tables of simulated leaves."""
    topology = build("clos:n=3,r=3,m=4")
    spec = f"dar:elephant_kb=0,start={start}"
    pairs = [(src, dst) for src in range(9) for dst in range(9) if src // 3 != dst // 3]
    flows = PacketFlows.of([(src, dst, 1000) for src, dst in pairs])
    simulation = Simulation(
        topology,
        f"{spec},p=3",
        flows,
        transport("plain", ALL),
        [LINK] * len(topology.links),
        Switching(),
        1,
        daemons=True,
    )
    simulation.run((), 0.001, ())
    expected = {
        (leaf, pairs[row.message]): int(simulation.network.ports.number[row.port])
        for leaf in range(9, 12)
        for row in simulation.network.table(leaf, 10**9)
        if pairs[row.message][0] // 3 == leaf - 9
    }
    assert len(expected) == len(pairs)
    assert len(set(expected.values())) >= 3
    network = RunningNetwork.create(topology, SLOW, scheme="static")
    try:
        with DataPlane.load(network, "dar:elephant_kb=0", seed=1) as plane:
            plane.attach()
            plane.set_scheme(spec)
            fabric = Fabric(network, plane, plane._program)
            for (leaf, (src, dst)), number in expected.items():
                before = plane.counters()
                address = topology.naming.address
                frame = packet(src=address(src), dst=address(dst), to=mac(leaf, src % 3))
                fabric.put_in(frame, src % 3, leaf)
                now = plane.counters()
                used = [
                    port
                    for node, port in now
                    if node == leaf and now[node, port].packets > before[node, port].packets
                ]
                assert used == [number], (src, dst)
    finally:
        network.down()
