"""Sizes, degrees, diameters and structure of Slim Fly, Dragonfly, HyperX, Jellyfish and Xpander."""

from collections import Counter

import networkx as nx
import numpy as np
import pytest

from weft.topologies import build, canonical
from weft.topologies.low_diameter.random_graphs import SplitMix64, regular


def routers(topology, levels=None):
    """The graph of the routers, over links of these levels only."""
    chosen = topology.level > 0 if levels is None else np.isin(topology.level, levels)
    graph = nx.Graph()
    graph.add_nodes_from(range(topology.switches))
    edges = topology.links[chosen][:, [0, 2]] - topology.servers
    graph.add_edges_from(edges.tolist())
    assert graph.number_of_edges() == len(edges), "a link is there twice"
    return graph


def routers_by(topology, role):
    """The graph of the routers, over the links whose cables cost what `role` costs."""
    return routers(topology, [level for level, name in enumerate(topology.roles) if name == role])


TABLE_IV = [
    ("complete:n=101,p=100", 100, 101, 10100, 1),
    ("slimfly:q=19,p=14", 29, 722, 10108, 2),
    ("xpander:r=32,seed=1", 32, 1056, 16896, 3),
    ("hyperx:l=3,s=11", 30, 1331, 13310, 3),
    ("dragonfly:p=8", 23, 2064, 16512, 3),
]


@pytest.mark.parametrize(("spec", "degree", "count", "hosts", "diameter"), TABLE_IV)
def test_sizes_of_table_iv(spec, degree, count, hosts, diameter):
    """FatPaths, table IV: k', N_r, N and D."""
    topology = build(spec)
    topology.check()
    graph = routers(topology)
    assert {number for _, number in graph.degree} == {degree}
    assert (topology.switches, topology.servers) == (count, hosts)
    # all five look alike from 0, or
    assert max(nx.single_source_shortest_path_length(graph, 0).values()) == diameter
    if count < 800:  # nearly so
        assert nx.diameter(graph) == diameter


def test_the_fat_tree_of_table_iv():
    topology = build("fattree:k=36")
    assert (topology.switches, topology.servers) == (1620, 11664)
    assert build("fattree:k=36,oversubscription=2").servers == 2 * 11664  # section VII


@pytest.mark.parametrize("q", [3, 4, 5, 7, 8, 9, 11, 13, 16, 17])
def test_a_slim_fly_has_diameter_2_for_every_prime_power(q):
    """MMS graphs: 2 q^2 vertices, (3q - delta) / 2-regular, diameter 2 (McKay, Miller and
    Siran)."""
    topology = build(f"slimfly:q={q}")
    graph = routers(topology)
    delta = {1: 1, 3: -1, 0: 0}[q % 4]
    assert len(graph) == 2 * q * q
    assert {number for _, number in graph.degree} == {(3 * q - delta) // 2}
    assert nx.diameter(graph) == 2


def test_the_smallest_slim_fly_is_the_hoffman_singleton_graph():
    assert nx.is_isomorphic(routers(build("slimfly:q=5")), nx.hoffman_singleton_graph())


@pytest.mark.parametrize("q", [4, 5, 7])
def test_levels_of_a_slim_fly(q):
    """Level 1 within columns; level 2 between the two columns of a group; level 3 between all other
    columns of different halves, as many between any two groups."""
    topology = build(f"slimfly:q={q}")
    column = {router: router // q for router in range(2 * q * q)}
    assert all(column[a] == column[b] for a, b in routers(topology, [1]).edges)
    assert all(column[b] - column[a] == q for a, b in routers(topology, [2]).edges)
    between = Counter(
        frozenset((column[a] % q, column[b] % q)) for a, b in routers(topology, [3]).edges
    )
    assert set(map(len, between)) == {2}
    assert set(between.values()) == {2 * q}
    assert topology.roles == ("host", "local", "local", "global")


@pytest.mark.parametrize(
    "spec", ["dragonfly:p=1", "dragonfly:p=2", "dragonfly:p=3", "dragonfly:p=3,palm=1"]
)
def test_a_dragonfly_joins_any_two_groups_once(spec):
    topology = build(spec)
    p = topology.parameters["p"]
    assert topology.switches == 4 * p**3 + 2 * p  # FatPaths, table V
    local, across = routers_by(topology, "local"), routers_by(topology, "global")
    groups = 2 * p * p + 1
    assert all(a // (2 * p) == b // (2 * p) for a, b in local.edges)
    assert {number for _, number in local.degree} == {2 * p - 1}
    assert {number for _, number in across.degree} == {p}
    pairs = Counter(frozenset((a // (2 * p), b // (2 * p))) for a, b in across.edges)
    assert len(pairs) == groups * (groups - 1) // 2
    assert set(pairs.values()) == {1}
    assert nx.diameter(routers(topology)) <= 3


def test_global_arrangements_of_a_dragonfly():
    """p = 1: three groups of two routers, one global link each.  The link of router 0 leads to the
    first other group if consecutive, to the group before if palm-tree."""

    def joined_groups(spec):
        graph = routers(build(spec), [2])
        return [sorted(graph[router])[0] // 2 for router in (0, 2, 4)]

    assert joined_groups("dragonfly:p=1") == [1, 0, 0]
    assert joined_groups("dragonfly:p=1,palm=1") == [2, 0, 1]


def test_a_dragonfly_with_other_groups():
    topology = build("dragonfly:p=2,a=3,h=1")
    assert (topology.switches, topology.servers) == (12, 24)
    assert topology.spec == "dragonfly:p=2,a=3,h=1,palm=0"
    assert build(topology.spec).spec == topology.spec


@pytest.mark.parametrize(("dimensions", "s"), [(1, 4), (2, 3), (2, 5), (3, 3), (4, 2)])
def test_a_hyperx_is_a_hamming_graph(dimensions, s):
    topology = build(f"hyperx:l={dimensions},s={s}")
    expected = nx.complete_graph(s)
    for _ in range(dimensions - 1):
        expected = nx.cartesian_product(expected, nx.complete_graph(s))
    assert nx.is_isomorphic(routers(topology), expected)
    for level in range(1, dimensions + 1):
        rows = list(nx.connected_components(routers(topology, [level])))
        assert [len(row) for row in rows] == [s] * s ** (dimensions - 1)


@pytest.mark.parametrize(
    ("n", "r"), [(2, 1), (3, 2), (10, 3), (20, 4), (12, 11), (9, 8), (50, 7), (30, 27)]
)
@pytest.mark.parametrize("seed", [0, 1, 99])
def test_a_jellyfish_is_regular_connected_and_named_by_its_seed(n, r, seed):
    spec = f"jellyfish:n={n},r={r},p=2,seed={seed}"
    graph = routers(build(spec))
    assert {number for _, number in graph.degree} == {r}
    assert nx.is_connected(graph)
    assert (build(spec).links == build(spec).links).all()


def test_seeds_give_different_networks():
    found = {
        frozenset(routers(build(f"jellyfish:n=20,r=4,p=1,seed={seed}")).edges) for seed in range(20)
    }
    assert len(found) == 20
    found = {frozenset(routers(build(f"xpander:r=4,l=4,seed={seed}")).edges) for seed in range(20)}
    assert len(found) == 20


@pytest.mark.slow
def test_every_regular_graph_may_be_drawn():
    """The 3-regular graphs of 6 vertices: 10 labelled K_3,3 and 60 labelled prisms."""
    random = SplitMix64(1)
    found = {frozenset(edges) for _ in range(3000) if (edges := regular(6, 3, random))}
    assert len(found) == 70


@pytest.mark.parametrize(("r", "lift"), [(3, 1), (3, 2), (4, 5), (6, 6)])
def test_an_xpander_is_a_lift_of_the_complete_graph(r, lift):
    graph = routers(build(f"xpander:r={r},l={lift},seed=3"))
    assert len(graph) == lift * (r + 1)
    assert nx.is_connected(graph)
    for router in graph:
        assert sorted(other // lift for other in graph[router]) == [
            v for v in range(r + 1) if v != router // lift
        ]


@pytest.mark.parametrize(
    "spec", ["slimfly:q=5,p=3", "dragonfly:p=2", "hyperx:l=2,s=4", "xpander:r=4,seed=0"]
)
def test_the_equivalent_jellyfish_has_the_same_routers(spec):
    topology, random = build(spec), build(f"equivalent-jellyfish:seed=7,of={spec}")
    assert (random.family, random.switches, random.servers) == (
        "jellyfish",
        topology.switches,
        topology.servers,
    )
    assert dict(routers(random).degree) == dict(routers(topology).degree)
    assert random.spec == canonical(f"equivalent-jellyfish:seed=7,of={spec}")
    assert (build(random.spec).links == random.links).all()


@pytest.mark.parametrize(
    "spec", [f"fattree:k={k},oversubscription={o}" for k in (4, 6, 8) for o in (1, 2, 3)]
)
def test_the_equivalent_jellyfish_is_as_near_to_the_mean_as_whole_numbers_can_be(spec):
    """Numbers of hosts and links that differ by router have a mean, by a graph library."""
    graph = nx.Graph(build(spec).links[:, [0, 2]].tolist())
    hosts = [node for node, degree in graph.degree if degree == 1]
    graph.remove_nodes_from(hosts)
    n, r, p = (
        int(word.split("=")[1])
        for word in canonical(f"equivalent-jellyfish:seed=1,of={spec}").split(",")[:3]
    )
    degree = 2 * graph.number_of_edges() / len(graph)
    assert n == len(graph)
    assert abs(p - len(hosts) / n) <= 0.5
    assert -0.5 <= degree - r <= (1.5 if n % 2 else 0.5)  # n r is even


def test_the_equivalent_jellyfish_of_a_fat_tree_has_four_links_for_each_host():
    """FatPaths, appendix A-F: k = p + k' and k' / p about 4."""
    assert (
        canonical("equivalent-jellyfish:seed=1,of=fattree:k=36")
        == "jellyfish:n=1620,r=29,p=7,seed=1"
    )


@pytest.mark.parametrize(("spec", "name"), [
    ("slimfly:q=19", "slimfly:q=19,p=15"),
    ("slimfly:p=14,q=19", "slimfly:q=19,p=14"),
    ("hyperx:s=4,l=2", "hyperx:l=2,s=4,p=3"),
    ("xpander:seed=1,r=5", "xpander:r=5,l=5,p=3,seed=1"),
    ("dragonfly:p=2", "dragonfly:p=2,palm=0"),
])  # fmt: skip
def test_one_network_has_one_name(spec, name):
    assert canonical(spec) == name == build(spec).spec


def test_ports_are_hosts_then_routers_in_order():
    topology = build("slimfly:q=3,p=2")
    name = topology.naming.name
    for router in range(topology.servers, topology.nodes):
        ports = topology.ports(router)
        assert [port for port, *_ in ports] == list(range(2 + 5))
        peers = [peer for _, peer, *_ in ports]
        assert peers[:2] == [2 * (router - topology.servers), 2 * (router - topology.servers) + 1]
        assert peers[2:] == sorted(peers[2:])
    assert name(topology.nodes - 1) == "r17"


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        (
            "slimfly:q=6",
            "slimfly: q must be a prime power other than 2, such as 5, 7, 8 or 9, got 6",
        ),
        (
            "slimfly:q=15",
            "slimfly: q must be a prime power other than 2, such as 5, 7, 8 or 9, got 15",
        ),
        (
            "jellyfish:n=5,r=3,p=1,seed=0",
            (
                "jellyfish: 5 routers cannot each be joined to 3 others: n r must be even and 1 "
                "< r < n"
            ),
        ),
        (
            "jellyfish:n=4,r=1,p=1,seed=0",
            (
                "jellyfish: 4 routers cannot each be joined to 1 others: n r must be even and 1 "
                "< r < n"
            ),
        ),
        (
            "jellyfish:n=4,r=3,p=1",
            "jellyfish: seed is missing, for example jellyfish:n=20,r=4,p=2,seed=1",
        ),
        (
            "xpander:r=1,l=9,seed=0",
            "xpander: no connected network in 20 attempts; r = 1 is too small for l = 9",
        ),
        ("hyperx:l=9,s=9", "hyperx: 387420489 routers are too many, there are addresses for 65536"),
        (
            "equivalent-jellyfish:seed=1",
            (
                "equivalent-jellyfish: of is missing, for example "
                "equivalent-jellyfish:seed=1,of=slimfly:q=5"
            ),
        ),
        (
            "equivalent-jellyfish:of=slimfly:q=5",
            (
                "equivalent-jellyfish: seed is missing, for example "
                "equivalent-jellyfish:seed=1,of=slimfly:q=5"
            ),
        ),
        (
            "equivalent-jellyfish:seed=1,of=dcell:n=4,k=1",
            "equivalent-jellyfish: dcell:n=4,k=1 has no routers, its servers forward",
        ),
        (
            "equivalent-jellyfish:seed=1,of=planes:k=2,of=slimfly:q=3",
            "equivalent-jellyfish: hosts of planes:k=2,of=slimfly:q=3,p=3 have several links, "
            "those of a jellyfish one",
        ),
        (
            "equivalent-jellyfish:seeds=1,of=slimfly:q=5",
            "equivalent-jellyfish: no parameter 'seeds', did you mean seed? (there are: of, seed)",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(spec, line):
    with pytest.raises(ValueError) as raised:  # noqa: PT011, the line is compared whole
        build(spec)
    assert str(raised.value) == line
