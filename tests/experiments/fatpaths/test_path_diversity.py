"""Path diversity by arrays equals what networkx counts, in code as plain as the definitions."""

from collections.abc import Collection, Sequence
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest

from weft.experiments.fatpaths import router_graph
from weft.experiments.fatpaths.router_graph import UNREACHED, RouterGraph
from weft.topologies import build
from weft.topologies.core.failures import fail_links

NETWORKS = [
    *(
        "slimfly:q=3",
        "slimfly:q=4",
        "slimfly:q=5",
        "dragonfly:p=2",
        "hyperx:l=2,s=4",
        "hyperx:l=3,s=3",
    ),
    *(
        "xpander:r=5,seed=1",
        "jellyfish:n=20,r=4,p=1,seed=2",
        "complete:n=6,p=1",
        "fattree:k=4",
        "clos:n=2,r=3,m=4",
    ),
]


def rng():
    return np.random.default_rng(1)


def networkx_graph(graph: RouterGraph) -> nx.Graph:
    """Return the routers, each with its neighbours in order of number."""
    plain = nx.Graph()
    plain.add_nodes_from(range(graph.routers))
    plain.add_edges_from(
        (u, v) for u, v in zip(graph.tail.tolist(), graph.peer.tolist(), strict=True) if u < v
    )
    return plain


def shortest(graph: nx.Graph, src: int) -> dict[int, tuple[int, int]]:
    """Return length and number of the shortest paths from `src` to every router."""
    length = nx.single_source_shortest_path_length(graph, src)
    count = dict.fromkeys(graph, 0)
    count[src] = 1
    for node in sorted(length, key=length.__getitem__):
        for neighbour in graph[node]:
            if length[neighbour] == length[node] + 1:
                count[neighbour] += count[node]
    return {node: (length[node], count[node]) for node in length}


def disjoint(
    graph: nx.Graph, sources: Sequence[int], targets: Collection[int], most_hops: int
) -> int:
    """Return c_l(A, B): take a shortest path, delete its links, repeat."""
    unused = graph.copy()
    unused.add_edges_from(("source", node) for node in sources)
    unused.add_edges_from((node, "target") for node in targets)
    count = 0
    while path := nx.single_source_shortest_path(unused, "source", most_hops + 2).get("target"):
        unused.remove_edges_from(list(pairwise(path[1:-1])))
        count += 1
    return count


def interference(graph: nx.Graph, four: Sequence[int], most_hops: int) -> int:
    """Return I^l(ac, bd)."""
    a, b, c, d = four
    to_b, to_d, to_both = (
        disjoint(graph, [a, c], targets, most_hops) for targets in ([b], [d], [b, d])
    )
    return to_b + to_d - to_both


@pytest.mark.parametrize("spec", NETWORKS)
def test_shortest_paths_are_those_of_networkx(spec):
    graph = RouterGraph.of(build(spec))
    plain = networkx_graph(graph)
    for src in range(graph.routers):
        expected = shortest(plain, src)
        assert [expected[v] for v in range(graph.routers)] == list(
            zip(graph.distance[src].tolist(), graph.path_count[src].tolist(), strict=True)
        )
    hops = nx.single_source_shortest_path_length(plain, 0)
    assert all(
        len(list(nx.all_shortest_paths(plain, 0, v))) == graph.path_count[0, v] for v in hops if v
    )


@pytest.mark.parametrize("seed", range(12))
def test_paths_of_any_graph_are_those_of_networkx(seed):
    """Also where some routers cannot reach others, and distances are long."""
    plain = nx.gnm_random_graph(14, 12 + 2 * seed, seed=seed)
    graph = RouterGraph.from_edges(np.array(plain.edges), np.ones(14, dtype=np.int64))
    plain = networkx_graph(graph)
    for src in range(14):
        counts = shortest(plain, src) if nx.is_connected(plain) else path_counts(plain, src)
        expected = [counts.get(v, (UNREACHED, 0)) for v in range(14)]
        assert (
            list(zip(graph.distance[src].tolist(), graph.path_count[src].tolist(), strict=True))
            == expected
        )
    pairs = router_graph.random_pairs(graph, 60, rng())
    for hops in (1, 2, 3, 5, 8):
        expected = [disjoint(plain, [a], [b], hops) for a, b in pairs.tolist()]
        assert router_graph.cdp(graph, pairs, hops).values.tolist() == expected


def path_counts(plain, src):
    """Length and number of the shortest paths to each router that there are any to."""
    lengths = nx.single_source_shortest_path_length(plain, src)
    counts = {v: len(list(nx.all_shortest_paths(plain, src, v))) for v in lengths}
    return {v: (lengths[v], counts[v]) for v in lengths}


@pytest.mark.parametrize("spec", NETWORKS)
@pytest.mark.parametrize("extra", [0, 1, 2])
def test_disjoint_paths_are_those_of_networkx(spec, extra):
    graph = RouterGraph.of(build(spec))
    plain, hops = networkx_graph(graph), graph.diameter + extra
    pairs = router_graph.random_pairs(graph, 60, rng())
    expected = [disjoint(plain, [a], [b], hops) for a, b in pairs.tolist()]
    assert router_graph.cdp(graph, pairs, hops).values.tolist() == expected
    if len(graph.endpoints) >= 4:
        fours = router_graph.random_fours(graph, 40, rng())
        assert all(len({*four}) == 4 for four in fours.tolist())
        expected = [interference(plain, four, hops) for four in fours.tolist()]
        assert router_graph.interference(graph, fours, hops).values.tolist() == expected


@pytest.mark.parametrize("spec", NETWORKS)
def test_disjoint_paths_are_bounded_by_flows(spec):
    """With paths of any length the greedy count is at most networkx's edge connectivity, at least
    half of it, and for these networks mostly equal; no count is more than the routers have
    links."""
    graph = RouterGraph.of(build(spec))
    plain = networkx_graph(graph)
    pairs = router_graph.random_pairs(graph, 40, rng())
    counts = router_graph.disjoint_paths(graph, pairs[:, :1], pairs[:, 1:], graph.routers)
    cuts = np.array([nx.edge_connectivity(plain, a, b) for a, b in pairs.tolist()])
    assert (counts <= cuts).all()
    assert (2 * counts >= cuts).all()
    assert (counts == cuts).mean() > 0.5


def test_every_path_counts_in_networks_with_known_ones():
    complete = RouterGraph.of(build("complete:n=8,p=1"))
    pairs = router_graph.random_pairs(complete, 1000, rng())
    assert len(pairs) == 56
    assert set(router_graph.cdp(complete, pairs, 1).values) == {1}
    # the link, and through each other router
    assert set(router_graph.cdp(complete, pairs, 2).values) == {7}
    # girth 5: neighbours have no other path of 3 links or fewer
    moore = RouterGraph.of(build("slimfly:q=5"))
    far = moore.distance[tuple(router_graph.random_pairs(moore, 5000, rng()).T)]
    counts = router_graph.cdp(moore, router_graph.random_pairs(moore, 5000, rng()), 3).values
    assert set(counts[far == 1]) == {1}
    assert set(counts[far == 2]) == {7}
    assert set(
        router_graph.minimal_disjoint(moore, router_graph.random_pairs(moore, 100, rng()))
    ) == {1}


def test_minimal_disjoint_paths_may_be_fewer_than_shortest_paths():
    graph = RouterGraph.of(build("hyperx:l=3,s=3"))
    opposite = np.array([[0, 13]])  # all three coordinates differ
    assert graph.path_count[0, 13] == 6
    assert router_graph.minimal_disjoint(graph, opposite).tolist() == [3]


def test_interference_of_a_clique_is_the_two_links_that_both_would_use():
    """a-d and c-b lead to both targets: c_2 counts a link to b from each of a and c, and through
    each other router."""
    graph = RouterGraph.of(build("complete:n=101,p=1"))
    sample = router_graph.interference(graph, router_graph.random_fours(graph, 50, rng()), 2)
    assert round(sample.mean_fraction, 2) == 0.02  # FatPaths, table IV


def test_total_network_load():
    graph = RouterGraph.of(build("slimfly:q=5"))
    mean = (7 * 1 + 42 * 2) / 49  # a Moore graph: 7 neighbours, all others two links away
    assert graph.mean_distance == pytest.approx(mean)
    assert router_graph.total_network_load(graph) == pytest.approx(350 / mean)
    assert graph.diameter == 2
    assert graph.network_radix == 7


def test_failed_links_are_not_there():
    topology = build("complete:n=3,p=1")
    link = int(np.flatnonzero(topology.level == 1)[0])  # r0-r1
    graph = RouterGraph.of(fail_links(topology, [link]))
    assert graph.distance.tolist() == [[0, 2, 1], [2, 0, 1], [1, 1, 0]]
    alone = RouterGraph.of(fail_links(topology, np.flatnonzero(topology.level == 1)))
    assert alone.distance[0, 1] == UNREACHED
    with pytest.raises(ValueError, match=r"^the routers are not connected$"):
        _ = alone.diameter


def test_a_fat_trees_endpoints_are_its_edge_switches():
    graph = RouterGraph.of(build("fattree:k=4"))
    assert graph.endpoints.tolist() == list(range(8))
    assert (graph.network_radix, graph.diameter) == (2, 4)
    with pytest.raises(ValueError, match=r"^dcell:n=3,k=1 has no routers"):
        RouterGraph.of(build("dcell:n=3,k=1"))


def test_collisions_count_flows_of_each_router_pair():
    router_of = np.array([0, 0, 1, 1, 2])
    pairs = [(0, 2), (1, 3), (0, 1), (2, 0), (4, 0), (1, 2)]
    # 0->1 three times; 1->0, 2->0 once
    assert router_graph.collisions(pairs, router_of).tolist() == [3, 2, 0, 1]


def test_a_sample_says_its_quantiles_as_fractions_of_the_radix():
    sample = router_graph.Sample(np.arange(101), 10)
    assert sample.mean_fraction == 5
    assert sample.quantile_fraction(0.01) == 0.1
    assert sample.quantile_fraction(0.999) == 10
    assert sample.mean_error_fraction == pytest.approx(
        1.96 * np.arange(101).std(ddof=1) / 10 / 101**0.5
    )
