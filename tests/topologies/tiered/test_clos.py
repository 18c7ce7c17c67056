import networkx as nx

from weft.topologies import build


def graph(topology):
    return nx.Graph(topology.links[:, [0, 2]].tolist())


def test_two_leaves_with_eight_hosts_each_and_four_spines():
    topology = build("clos:n=8,r=2,m=4")
    topology.check()
    assert (topology.servers, topology.switches, len(topology.links)) == (16, 6, 24)
    name, node = topology.naming.name, topology.naming.node
    leaf = [name(peer) for _, peer, *_ in topology.ports(node("e1"))]
    assert leaf == [*(f"h{host}" for host in range(8, 16)), "c0", "c1", "c2", "c3"]
    assert [name(peer) for _, peer, *_ in topology.ports(node("c2"))] == ["e0", "e1"]


def test_dars_networks():
    """DAR 5.2: folded CLOS(24, 48, 24) and CLOS(24, 48, 48) of 1152 hosts."""
    for m in (24, 48):
        topology = build(f"clos:n=24,r=48,m={m}")
        assert topology.servers == 1152
        degree = [len(topology.ports(node)) for node in range(topology.servers, topology.nodes)]
        assert degree == [24 + m] * 48 + [48] * m


def test_a_full_one_is_a_fat_tree_of_two_tiers():
    assert nx.is_isomorphic(graph(build("clos:n=3,r=6,m=3")), graph(build("fattree:n=2,d=3")))
    assert (build("clos:n=3,r=6,m=3").links == build("fattree:n=2,d=3").links).all()
