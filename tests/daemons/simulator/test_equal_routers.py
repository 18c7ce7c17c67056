"""Daemons of switch fabrics on networks of equal routers and on a user's own: packets go as they do
on the graph."""

import random

import networkx as nx
import pytest

from weft.daemons.core import registry
from weft.daemons.simulator.simulator import Simulator
from weft.topologies import build
from weft.topologies.core.failures import fail_links

NETWORKS = ["slimfly:q=3,p=2", "slimfly:q=5,p=1", "dragonfly:p=2", "hyperx:l=2,s=3", "own"]
SMALL = ["slimfly:q=3,p=2", "hyperx:l=2,s=3", "own"]


@pytest.fixture
def network(request, tmp_path):
    if request.param != "own":
        return build(request.param)
    graph = nx.circulant_graph(9, [1, 3])  # routers with 0, 1 and 2 hosts
    nx.set_node_attributes(graph, {node: node % 3 for node in graph}, "hosts")
    nx.write_graphml(graph, tmp_path / "own.graphml")
    return build(f"file:{tmp_path / 'own.graphml'}")


def check(simulator, topology, spec, choices=4):
    scheme, options = registry.checked(topology, spec)
    draw = random.Random(1)
    for _ in range(40):
        src, dst = draw.sample(range(topology.servers), 2)
        allowed = [path.nodes for path in scheme.path(topology, options, src, dst)]
        walked = [simulator.walk(src, dst, choice) for choice in range(choices)]
        if spec == "bfs":  # one of the shortest, whichever
            assert {len(walk.path) for walk in walked} == {len(allowed[0])}
        else:
            assert {walk.path for walk in walked} <= set(allowed)
        assert not any(walk.lost for walk in walked)


# Daemons are the same but for bfs's: the others differ in what the data plane does with the hops.
# So they are compared on the networks that take no second.
CASES = [(network, "ecmp") for network in NETWORKS]
CASES += [(network, spec) for network in SMALL for spec in ("bfs", "letflow", "drill", "rps")]
CASES += [("slimfly:q=5,p=1", "bfs"), ("dragonfly:p=2", "bfs")]


@pytest.mark.parametrize(("network", "spec"), CASES, indirect=["network"])
def test_packets_take_the_paths_of_the_graph_before_and_after_failures(network, spec):
    simulator = Simulator(network, spec)
    simulator.run_until_converged()
    check(simulator, network, spec)
    between = [link for link in range(len(network.links)) if network.level[link] > 0]
    dead = random.Random(2).sample(between, 2)
    for link in dead:
        simulator.fail(link)
    simulator.run_until_quiet()
    check(simulator, fail_links(network, dead), spec)
