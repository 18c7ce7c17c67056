"""Networks whose daemons get a part of the processor time that they need."""

import pytest

from tests.daemons.simulator.slow_machine import slow_down
from weft.daemons.simulator.simulator import Simulator
from weft.topologies import build

SLIM_FLY = build("slimfly:q=5,p=1")


@pytest.mark.parametrize("slowness", [4, 10])
def test_a_network_comes_up_in_a_time_in_proportion_and_its_messages_make_no_storm(slowness):
    """When silence alone was judged, no time was enough at a quarter of the speed: 11,747 losses in
    a minute."""
    simulator = Simulator(SLIM_FLY, "bfs")
    switches = range(SLIM_FLY.servers, SLIM_FLY.nodes)
    slow_down(simulator, switches, slowness, until_s=10.0 * slowness)
    assert simulator.run_until_converged(within_s=3.0 * slowness, every_s=0.01) > 0.1
    losses = sum(simulator.status(node)["downs"] for node in switches)
    assert losses < len(SLIM_FLY.links) / 10
    assert simulator.counters["bytes"] < 6e6, "four times as many as on a machine that keeps up"


def test_routes_are_corrected_soon_after_a_pause():
    """When one late computation alone counted, packets looped for twice the length of a pause."""
    topology = build("complete:n=4,p=1")
    simulator = Simulator(topology, "bfs")
    simulator.run_until_converged()
    for node in range(topology.servers, topology.nodes):
        simulator.stall(node, 10.0)
    simulator.restart(6)
    simulator.run_for(11.0)
    assert not simulator.walk(0, 2).lost
