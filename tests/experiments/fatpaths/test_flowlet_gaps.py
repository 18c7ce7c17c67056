"""Shares of flows as fluids, against shares worked out by hand and against TCP."""

import networkx as nx
import numpy as np
import pytest

from weft.daemons.core import registry
from weft.daemons.fatpaths import scheme
from weft.experiments.fatpaths import flowlet_gaps
from weft.experiments.fatpaths.flowlet_gaps import (
    NONE,
    channels,
    chosen_layers,
    fair_shares,
    only_one_shortest,
)
from weft.experiments.runner.definition import Run
from weft.testbed.data_plane.layer_program import FlowKey
from weft.topologies import build


def test_flows_share_their_bottlenecks_and_others_take_what_is_left():
    routes = np.array([[0, 5, NONE], [1, 5, 6], [2, 6, NONE], [3, 7, NONE], [4, 5, 6]])
    assert fair_shares(routes) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1, 1 / 3])
    assert fair_shares(np.array([[0, 4], [1, 4], [2, 4], [3, 5], [0, 5]])) == pytest.approx(
        [1 / 3, 1 / 3, 1 / 3, 0.5, 0.5]
    )


def test_a_shared_rest_is_found_though_one_hop_lies_between():
    """Four flows share channel 0; one of them goes on by channel 1, whose other flow has the
    rest."""
    assert fair_shares(
        np.array([[0, NONE], [0, NONE], [0, NONE], [0, 1], [1, NONE]])
    ) == pytest.approx([0.25] * 4 + [0.75])


def test_channels_follow_the_tables():
    topology = build("slimfly:q=3,p=2")
    tables = scheme.tables(topology, registry.scheme("fatpaths:layers=9,construction=random")[1])
    ends = np.array([[0, 20], [3, 2], [20, 0], [0, 20]])
    routes = channels(topology, tables, ends, np.array([2, 0, 5, 2]))
    lengths = (routes != NONE).sum(axis=1)
    assert lengths[1] == 2  # of one router: from the host and to the host
    assert lengths[0] >= 3
    assert routes[0].tolist() == routes[3].tolist()
    assert not set(routes[0].tolist()) & set(routes[2].tolist()) - {NONE}


@pytest.mark.parametrize("spec", ["slimfly:q=3,p=1", "hyperx:l=2,s=3,p=1", "complete:n=4,p=2"])
def test_pairs_with_one_shortest_path_are_those_that_networkx_finds(spec):
    topology = build(spec)
    graph = nx.Graph([(int(a), int(b)) for a, b in topology.links[:, [0, 2]]])
    columns = {
        (src, dst): only_one_shortest(topology, src, dst)
        for src in range(4)
        for dst in range(4, topology.servers)
    }
    assert columns == {
        pair: len(list(nx.all_shortest_paths(graph, *pair))) == 1 for pair in columns
    }


def run(**instead):
    first = {key: values[0] for key, values in flowlet_gaps.EXPERIMENT.sweep.items()}
    return Run(
        experiment="flowlet_gaps",
        version=1,
        parameters={**first, **instead},
        seed=0,
        engine="kernel",
    )


@pytest.mark.kernel
@pytest.mark.parametrize(("scheme", "known"), [
    ("ecmp", True),
    ("fatpaths:layers=3,trigger=none,start=random,rho=0.6", True),
    ("fatpaths:layers=3,trigger=cut", False),
])  # fmt: skip
def test_fluids_take_the_paths_that_packets_take(scheme, known):
    """Hosts of each router of a clique send to the next router's: by the link between them, and by
    others in layers."""
    wanted = run(
        **{
            "topology": "complete:n=4,p=3",
            "pattern": "off-diagonal:c=3",
            "rate_mbps": 5,
            "seconds": 1.0,
        },
        scheme=scheme,
    )
    figures = flowlet_gaps.measure(wanted).figures
    if not known:
        assert figures["fluid_bps"] is None
        return
    assert figures["goodput_bps"] > 0
    links = figures["fluid_bps"] / (5e6 * 1448 / 1514)
    assert links == pytest.approx(4) if scheme == "ecmp" else 0.5 < links <= 12


def test_acknowledgements_and_flows_to_other_ports_say_nothing_of_a_flows_layer():
    topology = build("slimfly:q=3,p=1")
    first, second = (topology.naming.address(host) for host in (0, 7))
    flows = {
        FlowKey(first, second, 40001, 7000, 6): 2,
        FlowKey(second, first, 40002, 7000, 6): 3,
        FlowKey(second, first, 7000, 40001, 6): 1,
        FlowKey(first, second, 40001, 7000, 17): 4,
    }
    assert chosen_layers(topology, flows, [(0, 7), (7, 0)], 7000).tolist() == [2, 3]
    # which of the two is in layer 2?
    assert chosen_layers(topology, flows, [(0, 7), (0, 7)], 7000) is None
    # the second was forgotten
    assert chosen_layers(topology, flows, [(0, 7), (1, 7)], 7000) is None
