"""Planes of a fabric: each is the fabric itself, and they have nothing in common but hosts."""

from __future__ import annotations

import re

import networkx as nx
import numpy as np
import pytest

from weft.daemons.core import registry
from weft.daemons.routing import updown
from weft.topologies import build, canonical
from weft.topologies.core import failures
from weft.topologies.core.address import dotted
from weft.topologies.core.topology import Topology

PLANES = {
    "planes:k=4,of=clos:n=3,r=4,m=2": "clos:n=3,r=4,m=2",
    "planes:k=2,of=fattree:k=4": "fattree:k=4",
    "planes:k=3,of=slimfly:q=3,p=2": "slimfly:q=3,p=2",
    "planes:k=2,of=star:n=3": "star:n=3",
}


def graph_of(topology: Topology, switches: set[int]) -> nx.MultiGraph:
    """Return hosts, `switches` and their links, with the names of hosts as attributes."""
    graph = nx.MultiGraph()
    graph.add_nodes_from(switches, host=-1)
    graph.add_nodes_from((host, {"host": host}) for host in range(topology.servers))
    for link, (a, _, b, _) in enumerate(topology.links.tolist()):
        if b in switches:
            graph.add_edge(a, b, level=int(topology.level[link]))
    return graph


@pytest.mark.parametrize(("spec", "plane"), PLANES.items())
def test_each_plane_is_the_fabric_itself(spec: str, plane: str) -> None:
    topology, one = build(spec), build(plane)
    topology.check()
    assert topology.servers == one.servers
    assert topology.switches == topology.planes * one.switches
    whole = graph_of(topology, set(range(topology.servers, topology.nodes)))
    joined = list(nx.connected_components(whole.subgraph(set(whole) - set(range(one.servers)))))
    assert len(joined) == topology.planes
    expected = graph_of(one, set(range(one.servers, one.nodes)))
    for number in range(topology.planes):
        hosts_switch = topology.ports(0)[number][1]
        (own,) = (part for part in joined if hosts_switch in part)
        assert {topology.naming.name(node)[1:].split(".")[0] for node in own} == {str(number)}
        assert nx.is_isomorphic(
            graph_of(topology, own),
            expected,
            node_match=lambda a, b: a["host"] == b["host"],
            edge_match=lambda a, b: (
                sorted(e["level"] for e in a.values()) == sorted(e["level"] for e in b.values())
            ),
        )
        for host in range(one.servers):
            port, switch, _, _ = topology.ports(host)[number]
            assert port == number
            assert switch in own


@pytest.mark.parametrize(("spec", "plane"), PLANES.items())
def test_hosts_keep_names_and_addresses_and_switches_have_their_own(spec: str, plane: str) -> None:
    topology, one = build(spec), build(plane)
    for host in range(one.servers):
        assert topology.naming.label(host) == one.naming.label(host)
        assert topology.naming.address(host) == one.naming.address(host)
    addresses = {topology.naming.address(node) for node in range(topology.nodes)}
    assert len(addresses) == topology.nodes
    for node in range(topology.nodes):
        assert topology.naming.node(topology.naming.name(node)) == node


def test_the_first_digit_of_a_switch_is_its_plane() -> None:
    naming = build("planes:k=4,of=clos:n=8,r=16,m=4").naming
    assert dotted(naming.address(naming.node("e1.3"))) == "172.17.1.3"
    assert dotted(naming.address(naming.node("c3.0"))) == "172.18.3.0"


def test_a_name_is_one_network() -> None:
    text = "planes:k=02,of=equivalent-jellyfish:seed=1,of=slimfly:q=3"
    assert canonical(text) == build(text).spec
    assert canonical(canonical(text)) == canonical(text)
    assert canonical(text).startswith("planes:k=2,of=jellyfish:n=18,r=5,p=3,seed=1")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("planes:k=2", "planes: of is missing, for example planes:k=4,of=clos:n=8,r=16,m=4"),
        ("planes:of=star:n=3", "planes: k is missing, for example planes:k=4,of=clos:n=8,r=16,m=4"),
        ("planes:k=1,of=star:n=3", "planes: k must be at least 2, got 1"),
        ("planes:k=65,of=star:n=3", "planes: k must be at most 64, got 65"),
        ("planes:m=2,of=star:n=3", "planes: no parameter 'm' (there are: k, of)"),
        (
            "planes:k=2,of=dcell:n=4,k=1",
            "planes: dcell:n=4,k=1 is no fabric of a family whose hosts have one link",
        ),
        (
            "planes:k=2,of=planes:k=2,of=star:n=3",
            "planes: planes:k=2,of=star:n=3 is no fabric of a family whose hosts have one link",
        ),
        (
            "planes:k=60,of=jellyfish:n=6000,r=3,p=1,seed=1",
            "planes: labels of 60x6000 need 19 bits of address; 172.17.0.0/16 has 16",
        ),
        ("planes:k=2,of=clos:n=2,r=2", "clos: m is missing, for example clos:n=8,r=2,m=4"),
    ],
)
def test_what_is_no_network_of_planes_is_refused(spec: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        build(spec)


def test_a_switch_knows_ways_within_its_plane_alone() -> None:
    topology = build("planes:k=3,of=clos:n=2,r=3,m=2")
    damaged = failures.fail_links(topology, [topology.link("h5-e1.2")])
    name = topology.naming.name
    for switch in range(topology.servers, topology.nodes):
        plane = name(switch)[1]
        for network in (topology, damaged):
            for host, hops in enumerate(updown.next_hops(network, switch)):
                cut_off = network is damaged and host == 5 and plane == "1"
                assert bool(hops) != cut_off
                assert {name(hop.node)[1] for hop in hops if hop.node >= 6} <= {plane}


@pytest.mark.parametrize("scheme", ["ecmp", "ecmp:seeds=same", "drill", "rps", "dmodk"])
def test_paths_of_all_planes_share_the_packets(scheme: str) -> None:
    topology = build("planes:k=4,of=clos:n=2,r=3,m=2")
    registered, options = registry.checked(topology, scheme)
    paths = registered.path(topology, options, 0, 5)
    assert sum(path.share for path in paths) == pytest.approx(1)
    shares = np.zeros(4)
    for path in paths:
        shares[int(topology.naming.name(path.nodes[1])[1])] += path.share
    assert shares == pytest.approx([0.25] * 4)


@pytest.mark.parametrize("scheme", ["ugal", "valiant", "lbsp", "fatpaths", "dar"])
def test_schemes_of_one_plane_refuse_several(scheme: str) -> None:
    topology = build("planes:k=2,of=clos:n=2,r=4,m=2")
    with pytest.raises(ValueError, match=f"^scheme {scheme} does not route several planes, planes"):
        registry.checked(topology, scheme)
