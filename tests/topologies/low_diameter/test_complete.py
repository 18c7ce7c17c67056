import networkx as nx

from weft.topologies import build


def test_any_two_routers_are_joined():
    topology = build("complete:n=5,p=4")
    topology.check()
    assert (topology.servers, topology.switches, len(topology.links)) == (20, 5, 30)
    routers = topology.links[topology.level == 1][:, [0, 2]] - topology.servers
    assert nx.is_isomorphic(nx.Graph(routers.tolist()), nx.complete_graph(5))


def test_after_the_hosts_the_other_routers_in_order():
    topology = build("complete:n=4,p=2")
    name = topology.naming.name
    peers = [name(peer) for _, peer, *_ in topology.ports(topology.naming.node("r2"))]
    assert peers == ["h4", "h5", "r0", "r1", "r3"]


def test_fatpaths_clique():
    """FatPaths, table IV: k' = 100, 101 routers, 10100 endpoints."""
    topology = build("complete:n=101,p=100")
    assert (topology.switches, topology.servers) == (101, 10100)
