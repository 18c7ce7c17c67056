from itertools import pairwise
from random import Random

import pytest

from weft.daemons.core.actions import Hop
from weft.daemons.routing import dr, shortest
from weft.topologies import build
from weft.topologies.recursive.ccrdn import BETA_DCELL, DCELL, FAMILY, FICONN, Ccrdn

SMALL = [
    *[(rule, n, k) for rule in (DCELL, BETA_DCELL) for n, k in ((3, 0), (4, 1), (7, 1), (3, 2))],
    *[(FICONN, n, k) for n, k in ((4, 0), (8, 1), (4, 2), (6, 2))],
]
LARGE = [(DCELL, 3, 3), (BETA_DCELL, 6, 3), (DCELL, 43, 2), (FICONN, 10, 3), (FICONN, 16, 3)]


def graph(rule, n, k):
    return build(f"{FAMILY[rule]}:n={n},k={k}")


def pairs(network, seed=1, most=4000):
    """All ordered pairs of different servers, or `most` drawn ones of a larger network."""
    servers = network.t[-1]
    if servers**2 <= 30_000:
        return [(a, b) for a in range(servers) for b in range(servers) if a != b]
    return [tuple(Random(seed + i).sample(range(servers), 2)) for i in range(most)]


def defined_route(network, src, dst, level):
    """Definition 4.1 word for word: P_a + (dst', src') + P_b, the link found by trying every server
    of the copy."""
    size = network.t[level]
    while src // size == dst // size and level:
        level -= 1
        size = network.t[level]
    if level == 0 and src // size == dst // size:
        return [src] if src == dst else [src, dst]
    copy = range(src - src % size, src - src % size + size)
    (near,) = [
        u for u in copy if (v := network.peer(u, level + 1)) >= 0 and v // size == dst // size
    ]
    far = network.peer(near, level + 1)
    return defined_route(network, src, near, level) + defined_route(network, far, dst, level)


@pytest.mark.parametrize(("rule", "n", "k"), [*SMALL, (DCELL, 3, 3)])
def test_a_route_is_the_one_that_the_definition_gives(rule, n, k):
    network = Ccrdn(rule, n, k)
    for src, dst in pairs(network)[::7]:
        assert dr.route(rule, network.t, src, dst) == defined_route(network, src, dst, k)


@pytest.mark.parametrize(("rule", "n", "k"), SMALL)
def test_a_route_walks_links_and_keeps_the_papers_bound(rule, n, k):
    network, adjacency = Ccrdn(rule, n, k), graph(rule, n, k).adjacency
    far = {src: shortest.distances(adjacency, src) for src in adjacency}
    for src, dst in pairs(network):
        path = dr.route(rule, network.t, src, dst)
        assert (path[0], path[-1]) == (src, dst)
        assert all(b in adjacency[a] for a, b in pairwise(path))
        assert len(set(path)) == len(path)
        assert far[src][dst] <= len(path) - 1 <= 2 ** (k + 1) - 1


@pytest.mark.parametrize(("rule", "n", "k"), [*SMALL, *LARGE])
def test_next_hops_make_the_same_route_from_wherever_it_is_joined(rule, n, k):
    network = Ccrdn(rule, n, k)
    for src, dst in pairs(network, most=300)[::5]:
        path = dr.route(rule, network.t, src, dst)
        assert len(path) - 1 <= 2 ** (k + 1) - 1
        for at in range(1, len(path) - 1):
            assert dr.route(rule, network.t, path[at], dst) == path[at:]


@pytest.mark.parametrize(("rule", "n", "k"), [*SMALL, *LARGE])
def test_the_way_back_is_the_way_there(rule, n, k):
    network = Ccrdn(rule, n, k)
    for src, dst in pairs(network, most=300):
        assert dr.route(rule, network.t, dst, src) == dr.route(rule, network.t, src, dst)[::-1]


@pytest.mark.parametrize(("rule", "n", "k"), SMALL)
def test_the_bound_is_reached(rule, n, k):
    """Table 1, column d: 2^(k+1) - 1."""
    network = Ccrdn(rule, n, k)
    assert (
        max(len(dr.route(rule, network.t, src, dst)) - 1 for src, dst in pairs(network))
        == 2 ** (k + 1) - 1
    )


def test_mean_hop_length_of_dcell_3_3():
    """CCRDN 7.2 prints 10.2 (for DCell_{3,4}; it is DCell_{3,3} that has it)."""
    network = Ccrdn(DCELL, 3, 3)
    drawn = pairs(network, most=4000)
    assert (
        abs(sum(len(dr.route(DCELL, network.t, *pair)) - 1 for pair in drawn) / len(drawn) - 10.2)
        < 0.15
    )


@pytest.mark.parametrize(("rule", "n", "k"), SMALL)
def test_prefix_routes_are_next_hop(rule, n, k):
    network, topology = Ccrdn(rule, n, k), graph(rule, n, k)
    addresses = [topology.naming.address(server) for server in range(topology.servers)]
    for server in range(topology.servers):
        routes = dr.prefix_routes(network, server)
        assert len(routes) == sum(g - 1 for g in network.copies)
        neighbours = topology.neighbours(server)
        for dst in range(topology.servers):
            hops = [hop for prefix, hop in routes if prefix.holds(addresses[dst])]
            if dst == server:
                assert hops == []
            else:
                ((port, node),) = hops
                assert node == dr.next_hop(rule, network.t, server, dst)
                assert node in neighbours[port]


def test_port_of_a_neighbour():
    network = Ccrdn(DCELL, 4, 1)
    assert dr.hop_to(network, 0, 3) == Hop(0, 3)
    assert dr.hop_to(network, 0, 4) == Hop(1, 4)
    with pytest.raises(ValueError, match=r"^servers 0 and 5 are not neighbours$"):
        dr.hop_to(network, 0, 5)
