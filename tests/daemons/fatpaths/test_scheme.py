"""FatPaths as a scheme: its paths on the graph, its routes, and both the same in simulated
daemons."""

import json

import networkx as nx
import numpy as np
import pytest

from weft.daemons.core import registry
from weft.daemons.core.node_config import routers
from weft.daemons.fatpaths import construction, scheme
from weft.daemons.fatpaths.layers import path as path_in
from weft.daemons.routing.route_addresses import FIRST, MOST_LAYERS, in_layer, tagged
from weft.daemons.simulator.simulator import Simulator
from weft.topologies import build
from weft.topologies.core.address import Prefix, dotted
from weft.topologies.core.failures import fail_links

SLIMFLY = build("slimfly:q=3,p=2")
NETWORKS = ["slimfly:q=3,p=2", "hyperx:l=2,s=3,p=1", "fattree:k=4", "jellyfish:n=14,r=4,p=1,seed=3"]


@pytest.fixture
def own_graph(tmp_path):
    """Routers with 0, 1 and 2 hosts."""
    graph = nx.petersen_graph()
    nx.set_node_attributes(graph, {node: node % 3 for node in graph}, "hosts")
    nx.write_graphml(graph, tmp_path / "petersen.graphml")
    return build(f"file:{tmp_path / 'petersen.graphml'}")


def paths(topology, spec, src, dst, failed=()):
    registration, options = registry.checked(topology, spec)
    return registration.path(fail_links(topology, list(failed)), options, src, dst)


def follow_all(topology, spec):
    """The paths of every layer from the first host of each router to the last of each, as daemons
    set them, against the scheme's paths."""
    simulator = Simulator(topology, spec)
    simulator.run_until_converged()
    options = registry.scheme(spec)[1]
    tables = scheme.tables(topology, options)
    hosts = [
        [host for _, host, _, _ in topology.ports(node) if host < topology.servers]
        for node in routers(topology)
    ]
    for src in [members[0] for members in hosts if members]:
        for dst in [members[-1] for members in hosts if members]:
            ways = paths(topology, spec, src, dst)
            if topology.ports(src)[0][1] == topology.ports(dst)[0][1]:
                assert [way.share for way in ways] == [1.0]
                continue
            assert [(way.layer, way.share) for way in ways] == [
                (layer, 1 / len(tables)) for layer in range(len(tables))
            ]
            assert len(simulator.walk(src, dst, src).path) == len(ways[0].nodes)
            for way in ways:
                assert simulator.walk(src, dst, first_octet=FIRST + way.layer).path == way.nodes
                assert len(set(way.nodes)) == len(way.nodes)


@pytest.mark.parametrize("spec", NETWORKS)
@pytest.mark.parametrize("construction", ["random", "intree"])
def test_routes_of_every_layer_lead_every_pair_along_the_schemes_path(spec, construction):
    follow_all(build(spec), f"fatpaths:layers=3,construction={construction},rho=0.7")


def test_a_users_graph_is_routed_in_layers_too(own_graph):
    follow_all(own_graph, "fatpaths:layers=3,rho=0.8")


def test_the_words_are_the_constructions():
    assert tuple(construction.CONSTRUCTIONS) == scheme.WORDS


@pytest.mark.parametrize("construction", scheme.WORDS)
def test_every_construction_is_one_of_the_scheme(construction):
    spec = f"fatpaths:layers=4,construction={construction}"
    assert len(scheme.tables(SLIMFLY, registry.checked(SLIMFLY, spec)[1])) == 4


def test_over_links_that_live_paths_are_those_of_the_daemons():
    spec = "fatpaths:layers=9,rho=0.7"
    before = paths(SLIMFLY, spec, 0, 35)
    dead = SLIMFLY.link_between(*before[0].nodes[1:3])
    after = paths(SLIMFLY, spec, 0, 35, [dead])
    assert [way.layer for way in after] == list(range(9))
    assert 0 < sum(one.nodes == other.nodes for one, other in zip(before, after, strict=True)) < 9
    simulator = Simulator(SLIMFLY, spec)
    simulator.run_until_converged()
    simulator.fail(dead)
    simulator.run_until_quiet()
    for way in after:
        assert simulator.walk(0, 35, first_octet=FIRST + way.layer).path == way.nodes
    json.dumps(simulator.status(SLIMFLY.servers))


def test_live_tables_lead_along_the_paths_over_live_links():
    spec = "fatpaths:layers=5,rho=0.7"
    dead = np.flatnonzero(SLIMFLY.level > 0)[[0, 7, 20]]
    options = registry.scheme(spec)[1]
    tables = scheme.live_tables(fail_links(SLIMFLY, dead), options)
    for t in range(1, SLIMFLY.switches):
        ways = paths(SLIMFLY, spec, 0, 2 * t, dead)
        assert [[18 * 2 + router for router in path_in(table, 0, t)] for table in tables] == [
            list(way.nodes[1:-1]) for way in ways
        ]
    cut_off = [link for *_, peer, _, link in SLIMFLY.ports(36) if peer >= 36]
    tables = scheme.live_tables(fail_links(SLIMFLY, cut_off), options)
    assert (tables[:, 0] == scheme.tables(SLIMFLY, options)[:, 0]).all()


def test_a_host_whose_link_is_dead_has_no_path():
    assert (
        paths(SLIMFLY, "fatpaths", 0, 35, [SLIMFLY.link_between(0, SLIMFLY.ports(0)[0][1])]) == []
    )


def test_tables_are_made_once_for_a_network_and_are_its_seeds():
    usual = registry.scheme("fatpaths:layers=4")[1]
    assert scheme.tables(SLIMFLY, usual) is scheme.tables(fail_links(SLIMFLY, [70]), usual)
    assert scheme.tables(SLIMFLY, usual) is scheme.tables(build("slimfly:q=3,p=2"), usual)
    other = scheme.tables(SLIMFLY, registry.scheme("fatpaths:layers=4,seed=2,rho=0.8")[1])
    assert (other != scheme.tables(SLIMFLY, usual)).any()
    sparse = scheme.tables(SLIMFLY, registry.scheme("fatpaths:layers=4,rho=0.4")[1])
    lengths = [
        np.mean([len(path_in(table, 0, t)) for table in each[1:] for t in range(18)])
        for each in (other, sparse)
    ]
    assert lengths[1] > lengths[0] + 0.2


def test_a_layer_is_the_first_octet():
    assert dotted(in_layer(10 << 24 | 0x010203, 0)) == "64.1.2.3"
    assert str(tagged(Prefix(10 << 24 | 7 << 8, 24), 62)) == "126.0.7.0/24"
    for layer in (-1, MOST_LAYERS):
        with pytest.raises(ValueError, match=r"layered routing: there are layers 0 \.\. 62, got"):
            in_layer(0, layer)


@pytest.mark.parametrize(
    ("network", "spec", "line"),
    [
        (
            "dcell:n=4,k=1",
            "fatpaths",
            (
                "scheme fatpaths runs on switch fabrics; dcell:n=4,k=1 is a server-centric "
                "network, take dr"
            ),
        ),
        ("slimfly:q=3", "fatpaths:layers=64", "scheme fatpaths: layers must be at most 63, got 64"),
        ("slimfly:q=3", "fatpaths:rho=1.1", "scheme fatpaths: rho must be 0 .. 1, got 1.1"),
        (
            "slimfly:q=3",
            "fatpaths:rho=0.0001",
            "scheme fatpaths: rho must be a number with at most 3 decimals, got '0.0001'",
        ),
        (
            "slimfly:q=3",
            "fatpaths:rho=0.1",
            "layered routing: no draw of 0.1 of the links joins all routers; raise rho",
        ),
        (
            "slimfly:q=3",
            "fatpaths:construction=best",
            f"scheme fatpaths: construction must be {' or '.join(scheme.WORDS)}, got 'best'",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(network, spec, line):
    with pytest.raises(ValueError) as raised:  # noqa: PT011, the line is compared whole
        registry.checked(build(network), spec)
    assert str(raised.value) == line


@pytest.mark.parametrize(("word", "data", "answers"), [
    ("cut", True, True),
    ("gap-cut", True, True),
    ("cut-ecn", True, True),
    ("gap-cut-ecn", True, True),
    ("data-cut", True, False),
    ("gap", False, False),
])  # fmt: skip
def test_acknowledgements_leave_layers_by_cuts_but_in_the_paper(word, data, answers):
    trigger = registry.rule(f"fatpaths:trigger={word}").hosts["trigger"]
    assert bool(trigger & scheme.Trigger.CUT) == data
    assert bool(trigger & scheme.Trigger.REPEAT) == answers
