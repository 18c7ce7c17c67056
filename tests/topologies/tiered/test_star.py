from weft.topologies import build


def test_one_router_has_all_the_hosts():
    topology = build("star:n=8")
    topology.check()
    assert (topology.servers, topology.switches) == (8, 1)
    assert topology.links.tolist() == [[host, 0, 8, host] for host in range(8)]
    assert not topology.server_centric
