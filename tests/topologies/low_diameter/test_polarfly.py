"""PolarFly is the polarity graph of a projective plane, with the racks of its authors."""

from collections import Counter
from itertools import product

import networkx as nx
import numpy as np
import pytest

from weft.topologies import build
from weft.topologies.low_diameter.diameter_two import field

ORDERS = [2, 3, 4, 5, 7, 8, 9, 11, 13]


def routers(topology, levels=(1, 2)):
    """The graph of the routers, over links of these levels only."""
    graph = nx.Graph()
    graph.add_nodes_from(range(topology.switches))
    chosen = np.isin(topology.level, levels)
    graph.add_edges_from((topology.links[chosen][:, [0, 2]] - topology.servers).tolist())
    return graph


def projective_plane(q):
    """Lines through the origin of GF(q)^3 as sets of vectors, joined where a product is 0."""
    galois = field(q)
    plus, times = galois.plus().tolist(), galois.times().tolist()
    vectors = [vector for vector in product(range(q), repeat=3) if any(vector)]
    lines = {
        frozenset(tuple(times[scale][x] for x in vector) for scale in range(1, q))
        for vector in vectors
    }
    graph = nx.Graph()
    graph.add_nodes_from(lines)
    for a, b in product(lines, lines):
        u, v = min(a), min(b)
        x, y, z = (times[i][j] for i, j in zip(u, v, strict=True))
        if a != b and plus[plus[x][y]][z] == 0:
            graph.add_edge(a, b)
    return graph


@pytest.mark.parametrize("q", [2, 3, 4, 5])
def test_it_is_the_graph_of_the_definition(q):
    assert nx.is_isomorphic(routers(build(f"polarfly:q={q}")), projective_plane(q))


@pytest.mark.parametrize("q", ORDERS)
def test_counts_and_common_neighbours(q):
    """Lakhotia et al.: q + 1 quadrics of degree q; routers without a link share one neighbour."""
    topology = build(f"polarfly:q={q}")
    topology.check()
    graph = routers(topology)
    assert len(graph) == q * q + q + 1
    assert graph.number_of_edges() == (topology.level > 0).sum() == q * (q + 1) ** 2 // 2
    assert Counter(dict(graph.degree).values()) == {q: q + 1, q + 1: q * q}
    adjacent = nx.to_numpy_array(graph, dtype=int)
    common = adjacent @ adjacent
    assert (common[(adjacent == 0) & ~np.eye(len(graph), dtype=bool)] == 1).all()


@pytest.mark.parametrize("q", ORDERS)
def test_racks_are_quadrics_and_a_centre_with_its_neighbours(q):
    graph = routers(build(f"polarfly:q={q}"))
    inside = routers(build(f"polarfly:q={q}"), [1])
    quadrics = {router for router, degree in graph.degree if degree == q}
    assert quadrics == set(range(q + 1))
    assert not any(inside.degree(router) for router in quadrics)
    racks = [rack for rack in nx.connected_components(inside) if not rack & quadrics]
    centres = set(graph[0])
    assert len(racks) == q
    for rack in racks:
        assert rack == set(range(min(rack), max(rack) + 1))
        assert min(rack) in centres
        assert rack == {min(rack), *(set(graph[min(rack)]) - quadrics)}
        assert inside.number_of_edges() >= len(rack) - 1
    # between racks of an odd q, as many links for any two: q - 2, and q + 1 to the quadrics
    if q % 2:
        home = {router: number for number, rack in enumerate([quadrics, *racks]) for router in rack}
        between = Counter(
            frozenset((home[a], home[b])) for a, b in graph.edges if home[a] != home[b]
        )
        assert {count for pair, count in between.items() if 0 not in pair} == {q - 2} - {0}
        assert {count for pair, count in between.items() if 0 in pair} == {q + 1}


def test_a_router_has_half_as_many_hosts_as_links():
    assert build("polarfly:q=7").spec == "polarfly:q=7,p=4"
    assert build("polarfly:q=8").spec == "polarfly:q=8,p=5"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("polarfly:q=6", "q must be a prime power, such as 4, 5, 7, 8 or 9, got 6"),
        ("polarfly:q=256", "q must be at most 255, got 256"),
        ("polarfly:q=251,p=300", "links are too many, the most is"),
    ],
)
def test_what_is_no_polarfly_is_refused(spec, words):
    with pytest.raises(ValueError, match=r"^polarfly: ") as error:
        build(spec)
    assert words in str(error.value)
