"""The daemons of every scheme for recursively-defined networks on other connection rules than
DCell's."""

import pytest

from weft.daemons.simulator.simulator import Simulator
from weft.topologies import build


@pytest.mark.parametrize("routing", ["dr", "pr-gpe", "pr-gpi", "dfr", "bfs"])
@pytest.mark.parametrize("spec", ["gamma-dcell:n=4,k=1", "delta-dcell:n=4,k=1"])
def test_every_pair_is_connected_over_links_that_there_are(spec, routing):
    topology = build(spec)
    simulator = Simulator(topology, routing)
    simulator.run_until_converged()
    for src in range(topology.servers):
        for dst in range(topology.servers):
            if src != dst:
                walk = simulator.walk(src, dst)
                assert not walk.lost
                assert walk.path[-1] == dst
