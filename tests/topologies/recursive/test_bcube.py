"""BCube's wiring and its routes, beside the words of the definition and a search."""

from itertools import combinations, pairwise, product

import networkx as nx
import pytest

from weft.daemons.routing import candidates
from weft.topologies import build

SIZES = [(2, 0), (2, 1), (4, 1), (2, 3), (3, 2), (5, 1)]


@pytest.mark.parametrize(("n", "k"), SIZES)
def test_a_crossbar_joins_servers_that_differ_in_one_digit(n, k):
    topology = build(f"bcube:n={n},k={k}")
    topology.check()
    naming = topology.naming
    words = dict(enumerate(product(range(n), repeat=k + 1)))  # a_k ... a_0
    assert (topology.servers, topology.switches) == (len(words), (k + 1) * n**k)
    assert len(topology.links) == (k + 1) * n ** (k + 1)
    for server, word in words.items():
        assert naming.layout.label_of(server) == word
        for level in range(k + 1):
            place = k - level
            expected = [
                other
                for other, theirs in words.items()
                if other != server
                and theirs[:place] + theirs[place + 1 :] == word[:place] + word[place + 1 :]
            ]
            assert list(topology.neighbours(server)[level]) == expected
            ((_, crossbar, digit, link),) = [
                row for row in topology.ports(server) if row[0] == level
            ]
            assert digit == word[place]
            assert topology.link_level(link) == level
            assert naming.name(crossbar).startswith(f"w{level}.")
            assert naming.node(naming.name(crossbar)) == crossbar


@pytest.mark.parametrize(("n", "k"), SIZES)
def test_routes_are_shortest_and_each_server_goes_on_along_them(n, k):
    topology = build(f"bcube:n={n},k={k}")
    graph = nx.Graph((a, b) for a, near in topology.adjacency.items() for b in near)
    lengths = dict(nx.all_pairs_shortest_path_length(graph))
    for src, dst in product(range(topology.servers), repeat=2):
        path = candidates.bcube_route(topology.naming, src, dst)
        assert (path[0], path[-1], len(path) - 1) == (src, dst, lengths[src][dst])
        address = topology.naming.address(dst)
        for near, far in pairwise(path):
            (hop,) = [
                hop
                for prefix, hop in candidates.bcube_routes(topology.naming, near)
                if prefix.holds(address)
            ]
            assert hop.node == far
            assert far in topology.neighbours(near)[hop.port]


def test_two_servers_have_disjoint_paths_over_every_port():
    """Guo et al., theorem 3: k + 1 paths between two servers have nothing else in common."""
    topology = build("bcube:n=3,k=2")
    graph = nx.Graph(topology.links[:, [0, 2]].tolist())
    for src, dst in combinations(range(topology.servers), 2):
        assert nx.node_connectivity(graph, src, dst) == 3


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("bcube:n=1,k=1", "bcube: n must be at least 2, got 1"),
        ("bcube:n=4,k=12", "bcube: n=4, k=12 has too many servers for 24 bits of address"),
        ("bcube:n=4097,k=1", "bcube: n=4097, k=1 has too many servers for 24 bits of address"),
        ("bcube:n=300,k=2", "bcube: n=300, k=2 has too many servers for 24 bits of address"),
    ],
)
def test_what_is_no_bcube_is_refused(spec, words):
    with pytest.raises(ValueError, match=r"^bcube: ") as error:
        build(spec)
    assert str(error.value) == words


@pytest.mark.parametrize("name", ["w2.0", "w1.4", "w1", "h16", "w1.1.1"])
def test_nodes_that_are_not_there_are_refused(name):
    with pytest.raises(ValueError, match=r"no (node|server)"):
        build("bcube:n=4,k=1").naming.node(name)
