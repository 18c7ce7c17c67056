"""GQ*'s wiring and its routes, beside a stellar transformation by networkx and a search."""

from collections import Counter
from itertools import pairwise, product

import networkx as nx
import numpy as np
import pytest

from weft.daemons.core import registry
from weft.daemons.routing import candidates
from weft.experiments.cli.graph_commands import diameter_hops
from weft.topologies import build

SIZES = [(2, 1), (2, 2), (2, 3), (2, 4), (3, 1), (3, 2), (3, 3), (4, 1), (4, 2), (5, 2), (6, 1)]


def hypercube(n, k):
    """The generalised hypercube (Bhuyan and Agrawal 1984): a product of k complete graphs."""
    cube = nx.complete_graph(n)
    for _ in range(k - 1):
        cube = nx.cartesian_product(cube, nx.complete_graph(n))
    words = {node: word_of(node, k) for node in cube}
    return nx.relabel_nodes(cube, words)


def word_of(node, k):
    """The digits of a node of nested products: ((a, b), c) is a, b, c."""
    word = ()
    for _ in range(k - 1):
        node, last = node
        word = (last, *word)
    return (node, *word)


def star_of(cube):
    """The stellar transformation of `cube`: a server (u, v) at u on each edge from u to v."""
    star = nx.Graph()
    for u, v in cube.edges:
        nx.add_path(star, [u, (u, v), (v, u), v])
    return star


def own_graph(topology):
    """The nodes of `topology` by the words of their switches, from names and port numbers."""
    n, k = topology.parameters["n"], topology.parameters["k"]
    words = list(product(range(n), repeat=k))  # u_(k-1) ... u_0

    def node(number):
        if number >= topology.servers:
            return words[int(topology.naming.name(number)[1:])]
        *word, port = map(int, topology.naming.label(number)[1:].split("."))
        dimension, rank = divmod(port, n - 1)
        place = k - 1 - dimension
        values = [value for value in range(n) if value != word[place]]
        far = (*word[:place], values[rank], *word[place + 1 :])
        return tuple(word), far

    return nx.Graph((node(a), node(b)) for a, _, b, _ in topology.links.tolist())


def hops_of(topology):
    graph = nx.Graph((a, b) for a, near in topology.adjacency.items() for b in near)
    return dict(nx.all_pairs_shortest_path_length(graph))


@pytest.mark.parametrize(("n", "k"), SIZES)
def test_it_is_the_star_of_a_hypercube_with_a_server_on_each_half_edge(n, k):
    topology = build(f"gqstar:n={n},k={k}")
    topology.check()
    cube = hypercube(n, k)
    assert topology.switches == len(cube) == n**k
    assert topology.servers == 2 * len(cube.edges) == n**k * k * (n - 1)
    assert len(topology.links) == 3 * len(cube.edges)
    own, star = own_graph(topology), star_of(cube)
    assert set(own) == set(star)
    assert set(map(frozenset, own.edges)) == set(map(frozenset, star.edges))


@pytest.mark.parametrize(("n", "k"), SIZES)
def test_port_0_leads_to_the_switch_and_port_1_over_the_edge_of_a_level(n, k):
    topology = build(f"gqstar:n={n},k={k}")
    for server in range(topology.servers):
        (port, switch, far, link), (other, peer, theirs, edge) = topology.ports(server)
        assert (port, other, theirs) == (0, 1, 1)
        assert topology.servers + server // (k * (n - 1)) == switch
        assert (server % (k * (n - 1)), 0) == (far, topology.link_level(link))
        label, theirs = (topology.naming.layout.label_of(node)[:-1] for node in (server, peer))
        differing = [k - place for place in range(k) if label[place] != theirs[place]]
        assert [topology.link_level(edge)] == differing
    for switch in range(topology.servers, topology.nodes):
        assert [port for port, *_ in topology.ports(switch)] == list(range(k * (n - 1)))
    assert np.bincount(topology.level)[1:].tolist() == [n**k * (n - 1) // 2] * k


@pytest.mark.parametrize("n", [4, 5])
def test_of_one_dimension_it_is_a_dcell(n):
    """n complete switches of n - 1 servers, with a link between any two: DCell_{1,n-1}."""
    graphs = [
        nx.Graph(build(spec).links[:, [0, 2]].tolist())
        for spec in (f"gqstar:n={n},k=1", f"dcell:n={n - 1},k=1")
    ]
    assert nx.is_isomorphic(*graphs)


@pytest.mark.parametrize(("n", "k"), SIZES)
def test_routes_are_shortest_and_each_server_goes_on_along_them(n, k):
    topology = build(f"gqstar:n={n},k={k}")
    naming, hops = topology.naming, hops_of(topology)
    tables = [candidates.gqstar_routes(naming, server) for server in range(topology.servers)]
    for src, dst in product(range(topology.servers), repeat=2):
        path = candidates.gqstar_route(naming, src, dst)
        assert (path[0], path[-1], len(path) - 1) == (src, dst, hops[src][dst])
        for near, far in pairwise(path):
            hop = longest_match(tables[near], naming.address(dst))
            assert hop.node == far
            assert far in topology.neighbours(near)[hop.port]


@pytest.mark.parametrize(("n", "k"), [(2, 4), (3, 3)])
def test_the_highest_dimension_is_first_but_for_the_edges_of_both_ends(n, k):
    topology = build(f"gqstar:n={n},k={k}")
    partner = topology.naming.partner
    orders = set()
    for src, dst in product(range(topology.servers), repeat=2):
        path = candidates.gqstar_route(topology.naming, src, dst)
        crossed = [
            near % (k * (n - 1)) // (n - 1) for near, far in pairwise(path) if partner(near) == far
        ]
        assert len(set(crossed)) == len(crossed)
        orders.add(tuple(crossed))
        first, last = path[1:2] == [partner(src)], path[-2:-1] == [partner(dst)]
        middle = crossed[first : len(crossed) - last]
        assert middle == sorted(middle, reverse=True)
    assert tuple(range(k - 1, -1, -1)) in orders
    assert len(orders) > k


def longest_match(table, address):
    return max((prefix.length, hop) for prefix, hop in table if prefix.holds(address))[1]


@pytest.mark.parametrize(("n", "k"), SIZES)
def test_a_route_over_m_edges_spares_a_hop_at_each_end_that_is_on_one_of_them(n, k):
    topology = build(f"gqstar:n={n},k={k}")
    hops, label_of = hops_of(topology), topology.naming.layout.label_of
    seen = Counter()
    for src, dst in product(range(topology.servers), repeat=2):
        if src == dst:
            continue
        (*u, a), (*v, b) = label_of(src), label_of(dst)
        steps = {place for place in range(k) if u[place] != v[place]}
        starts = far_word(u, a, n) == [*u[: (p := k - 1 - a // (n - 1))], v[p], *u[p + 1 :]]
        ends = far_word(v, b, n) == [*v[: (p := k - 1 - b // (n - 1))], u[p], *v[p + 1 :]]
        alike = a // (n - 1) == b // (n - 1) and len(steps) > 1  # one edge serves one end alone
        expected = 2 * len(steps) + 1 - (starts or ends if alike else starts + ends)
        assert hops[src][dst] == expected
        seen[expected - 2 * len(steps)] += 1
    assert set(seen) <= {-1, 0, 1}
    longest = max(max(row.values()) for row in hops.values())
    assert longest == diameter_hops(topology) == (2 * k + 1 if n > 2 else max(1, 2 * k - (k == 1)))


def far_word(word, port, n):
    """The word of the switch at the other end of the edge of a port."""
    place = len(word) - 1 - port // (n - 1)
    values = [value for value in range(n) if value != word[place]]
    return [*word[:place], values[port % (n - 1)], *word[place + 1 :]]


def test_a_table_has_fewer_prefixes_than_twice_the_switches():
    for n, k in ((4, 2), (3, 3), (10, 2)):
        naming = build(f"gqstar:n={n},k={k}").naming
        table = candidates.gqstar_routes(naming, naming.servers // 3)
        assert k * (n - 1) < len(table) < 2 * n**k
        assert len({prefix for prefix, _ in table}) == len(table)


# INRFlow (github.com/alejandroerickson/inrflow-mirror, 95f8be1), built and asked for all pairs:
# mean hops between servers of its routes, which correct the digits in one order.
INRFLOW = {(3, 2): 3.2857142857142856, (4, 2): 3.7157894736842105, (3, 3): 4.701863354037267}


@pytest.mark.parametrize(("n", "k"), INRFLOW)
def test_routes_are_shorter_than_those_of_the_authors_simulator(n, k):
    naming = build(f"gqstar:n={n},k={k}").naming
    total = one_order = 0
    for src, dst in product(range(naming.servers), repeat=2):
        total += len(candidates.gqstar_route(naming, src, dst)) - 1
        one_order += in_one_order(naming, src, dst)
    pairs = naming.servers * (naming.servers - 1)
    assert one_order / pairs == pytest.approx(INRFLOW[n, k], abs=1e-12)
    assert total < one_order


def in_one_order(naming, src, dst):
    """Hops of the route that corrects digit 0 first, then 1, and so on."""
    hops, ports, n = 0, naming.ports, naming.n
    for dimension in range(naming.k):
        u, v = src // ports, dst // ports
        digit, value = (word // n**dimension % n for word in (u, v))
        if digit == value:
            continue
        gateway = u * ports + dimension * (n - 1) + value - (value > digit)
        beyond = u + (value - digit) * n**dimension
        hops += 1 + (gateway != src)
        src = beyond * ports + dimension * (n - 1) + digit - (digit > value)
    return hops + (src != dst)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("gqstar:n=1,k=1", "gqstar: n must be at least 2, got 1"),
        ("gqstar:n=4,k=0", "gqstar: k must be at least 1, got 0"),
        ("gqstar:n=2,k=20", "gqstar: k must be at most 19, got 20"),
        (
            "gqstar:n=300,k=2",
            "gqstar: 5.39e+07 nodes and 8.07e+07 links are too many, the most is 16777216 each",
        ),
        (
            "gqstar:n=16777216,k=19",
            "gqstar: 5.93e+145 nodes and 8.9e+145 links are too many, the most is 16777216 each",
        ),
        (
            "gqstar:n=5,k=7",
            "gqstar: labels of 5x5x5x5x5x5x5x28 need 26 bits of address; 10.0.0.0/8 has 24",
        ),
    ],
)
def test_what_is_no_gqstar_is_refused(spec, words):
    with pytest.raises(ValueError, match=r"^gqstar: ") as error:
        build(spec)
    assert str(error.value) == words


@pytest.mark.parametrize("scheme", ["pr-gpe", "pr-gpi", "pr-gp0", "dfr", "tar", "ecmp", "fatpaths"])
def test_schemes_of_other_networks_are_refused_in_a_line(scheme):
    topology = build("gqstar:n=2,k=2")
    with pytest.raises(ValueError, match=r"gqstar:n=2,k=2 is ") as error:
        registry.checked(topology, scheme)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["w16", "w1.1", "w", "h96", "s1.3.6", "s4.0.0", "s1.3"])
def test_nodes_that_are_not_there_are_refused(name):
    with pytest.raises(ValueError, match=r"no (node|server|label)|digits are at most"):
        build("gqstar:n=4,k=2").naming.node(name)
