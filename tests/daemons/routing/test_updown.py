from itertools import pairwise
from math import comb

import networkx as nx
import numpy as np
import pytest

from weft.daemons.core.actions import Hop
from weft.daemons.routing import updown
from weft.topologies import build
from weft.topologies.core.failures import fail_links, fail_nodes, random_links
from weft.topologies.core.user_graph import topology_of

FABRICS = [
    *(
        "fattree:k=2",
        "fattree:k=4",
        "fattree:k=6",
        "fattree:n=2,d=3",
        "fattree:n=4,d=2",
        "fattree:k=4,oversubscription=3",
    ),
    *("clos:n=4,r=3,m=2", "clos:n=1,r=2,m=1", "star:n=5", "complete:n=2,p=1", "complete:n=5,p=3"),
    *(
        "slimfly:q=3",
        "slimfly:q=4,p=2",
        "dragonfly:p=2",
        "hyperx:l=2,s=3",
        "jellyfish:n=12,r=3,p=2,seed=1",
    ),
    "xpander:r=4,l=3,p=2,seed=1",
]


def names(topology, hops):
    return [f"{port}:{topology.naming.name(node)}" for port, node in hops]


def table(topology, name):
    """The routes of node `name` as text, prefix -> port:neighbour."""
    routes = updown.prefix_routes(topology, topology.naming.node(name))
    assert len({prefix for prefix, _ in routes}) == len(routes)
    return {str(prefix): names(topology, hops) for prefix, hops in routes}


def looked_up(routes, address):
    """The hops of the longest prefix that holds `address`, none if there is none."""
    matches = [(prefix.length, hops) for prefix, hops in routes if prefix.holds(address)]
    return max(matches, key=lambda found: found[0])[1] if matches else ()


def networkx_hops(topology):
    """For every node and every host, the neighbours that are nearer to it, by networkx on the live
    links."""
    graph = nx.Graph()
    graph.add_nodes_from(range(topology.nodes))
    graph.add_edges_from(topology.links[~topology.failed][:, [0, 2]].tolist())
    far = {
        host: nx.single_source_shortest_path_length(graph, host) for host in range(topology.servers)
    }
    return {
        (node, host): {
            peer for peer in graph[node] if node in hops and hops[peer] == hops[node] - 1
        }
        for host, hops in far.items()
        for node in graph
        if node != host
    }


def check_tables(topology):
    """Longest-prefix match in every node's table gives exactly the hops of networkx, by ports that
    lead there."""
    peer_of = {
        (node, port): peer
        for node in range(topology.nodes)
        for port, peer, *_ in topology.live_ports(node)
    }
    tables = [updown.prefix_routes(topology, node) for node in range(topology.nodes)]
    for (node, host), expected in networkx_hops(topology).items():
        hops = looked_up(tables[node], topology.naming.address(host))
        assert all(peer_of[node, port] == peer for port, peer in hops)
        # a host gives even what cannot be reached to its edge switch
        if expected or node >= topology.servers:
            assert {peer for _, peer in hops} == expected
            assert [port for port, _ in hops] == sorted({port for port, _ in hops})


@pytest.mark.parametrize("spec", FABRICS)
def test_longest_prefix_match_gives_every_equal_cost_hop(spec):
    check_tables(build(spec))


@pytest.mark.parametrize("spec", FABRICS)
@pytest.mark.parametrize("fraction", [0.05, 0.2, 0.5])
def test_also_when_links_have_failed(spec, fraction):
    topology = build(spec)
    check_tables(
        fail_links(
            topology, random_links(topology, fraction=fraction, generator=np.random.default_rng(3))
        )
    )


def test_also_when_a_switch_has_failed():
    topology = build("fattree:k=4")
    for name in ("e0.0", "a2.1", "c3"):
        check_tables(fail_nodes(topology, [topology.naming.node(name)]))


def test_the_tables_of_a_fat_tree():
    topology = build("fattree:k=4")
    assert table(topology, "h5") == {"0.0.0.0/0": ["0:e1.0"]}
    assert table(topology, "e1.0") == {
        "10.1.0.0/32": ["0:h4"],
        "10.1.0.1/32": ["1:h5"],
        "10.1.0.0/24": [],
        "10.0.0.0/8": ["2:a1.0", "3:a1.1"],
    }
    assert table(topology, "a1.1") == {
        "10.1.0.0/24": ["0:e1.0"],
        "10.1.1.0/24": ["1:e1.1"],
        "10.1.0.0/16": [],
        "10.0.0.0/8": ["2:c1", "3:c3"],
    }
    assert table(topology, "c2") == {f"10.{pod}.0.0/16": [f"{pod}:a{pod}.0"] for pod in range(4)}


def test_routers_of_a_clique_have_no_route_for_the_rest():
    assert table(build("complete:n=3,p=2"), "r1") == {
        "10.0.0.0/24": ["2:r0"],
        "10.0.1.0/32": ["0:h2"],
        "10.0.1.1/32": ["1:h3"],
        "10.0.2.0/24": ["3:r2"],
    }


@pytest.mark.parametrize(
    ("spec", "most"), [("fattree:k=8", 10), ("fattree:k=16", 18), ("fattree:n=4,d=4", 10)]
)
@pytest.mark.slow
def test_a_switch_holds_few_routes(spec, most):
    topology = build(spec)
    tables = [
        updown.prefix_routes(topology, node) for node in range(topology.servers, topology.nodes)
    ]
    assert max(len(routes) for routes in tables) <= most


def test_a_dead_uplink_is_left_out_and_a_dead_downlink_avoided():
    topology = build("fattree:k=4")
    broken = fail_links(topology, [topology.link("e0.0-a0.0")])
    assert table(broken, "e0.0")["10.0.0.0/8"] == ["3:a0.1"]
    other_pod = table(broken, "e1.0")
    assert other_pod["10.0.0.0/24"] == ["3:a1.1"]  # what goes to e0.0 cannot go down by a0.0
    assert other_pod["10.0.0.0/8"] == ["2:a1.0", "3:a1.1"]


def test_what_cannot_be_reached_has_no_route():
    topology = build("fattree:k=4")
    cut = fail_links(topology, [topology.link("h5-e1.0")])
    address = topology.naming.address(5)
    for node in range(topology.servers, topology.nodes):
        assert looked_up(updown.prefix_routes(cut, node), address) == ()
    assert updown.prefix_routes(cut, 5) == []


def test_next_hops_of_a_switch():
    topology = build("clos:n=2,r=2,m=2")
    node = topology.naming.node
    up = (Hop(2, node("c0")), Hop(3, node("c1")))
    assert updown.next_hops(topology, node("e0")) == [(Hop(0, 0),), (Hop(1, 1),), up, up]


@pytest.mark.parametrize(("spec", "src", "dst", "count", "links"), [
    ("fattree:k=4", "h0", "h1", 1, 2),
    ("fattree:k=4", "h0", "h2", 2, 4),
    ("fattree:k=4", "h0", "h15", 4, 6),
    ("fattree:k=8", "h0", "h127", 16, 6),
    ("fattree:n=4,d=3", "h0", "h161", 27, 8),
    ("clos:n=8,r=2,m=4", "h0", "h15", 4, 4),
    ("complete:n=5,p=4", "h0", "h19", 1, 3),
    ("slimfly:q=5,p=4", "h0", "h199", 1, 4),
    ("hyperx:l=3,s=3", "h0", "h53", 6, 5),
])  # fmt: skip
def test_there_are_as_many_shortest_paths_as_the_family_says(spec, src, dst, count, links):
    """TTC, section 2: d^(h-1) for hosts at distance h.  The order of differing coordinates in a
    HyperX: 3! = 6."""
    topology = build(spec)
    routes = updown.paths(topology, topology.naming.node(src), topology.naming.node(dst))
    assert len(routes) == len({tuple(path) for path in routes}) == count
    for path in routes:
        assert len(path) - 1 == links
        assert all(topology.link_between(a, b) >= 0 for a, b in pairwise(path))


def test_a_server_centric_network_is_refused():
    with pytest.raises(ValueError, match=r"^dcell:n=4,k=1 is not a switch fabric"):
        updown.prefix_routes(build("dcell:n=4,k=1"), 0)


def test_a_users_graph_where_switches_have_different_numbers_of_hosts():
    graph = nx.petersen_graph()
    nx.set_node_attributes(graph, {node: (0, 1, 3)[node % 3] for node in graph}, "hosts")
    check_tables(topology_of(graph))
    graph = nx.grid_2d_graph(3, 3)
    check_tables(topology_of(graph, p=2))


def test_d_mod_k_keeps_to_these_hops():
    """TTC 2.1: up-port floor(t / d^(l-1)) mod d at tier l is an equal-cost hop, and over all t each
    is used."""
    d, topology = 2, build("fattree:n=3,d=2")
    used = set()
    for host in range(8, 16):
        for tier, name in ((1, "e0.0"), (2, "a0.1")):
            hops = updown.next_hops(topology, topology.naming.node(name))[host]
            port = d + host // d ** (tier - 1) % d
            assert port in [hop.port for hop in hops]
            used.add((tier, port))
    assert len(used) == comb(4, 1)
