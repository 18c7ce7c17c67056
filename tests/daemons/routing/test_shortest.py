import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.daemons.routing import shortest
from weft.topologies import build


@st.composite
def graphs(draw):
    nodes = draw(st.integers(1, 9))
    every = [(a, b) for a in range(nodes) for b in range(a)]
    graph = nx.Graph()
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from(draw(st.lists(st.sampled_from(every), unique=True)) if every else [])
    return graph


def adjacency(graph):
    return {node: tuple(graph[node]) for node in graph}


@given(graphs())
def test_distances_are_those_of_networkx(graph):
    for src in graph:
        assert shortest.distances(adjacency(graph), src) == nx.single_source_shortest_path_length(
            graph, src
        )


@given(graphs())
def test_paths_are_all_the_shortest_ones_in_order(graph):
    for src in graph:
        for dst in graph:
            expected = (
                sorted(nx.all_shortest_paths(graph, src, dst))
                if nx.has_path(graph, src, dst)
                else []
            )
            assert list(shortest.paths(adjacency(graph), src, dst)) == expected
            assert shortest.route(adjacency(graph), src, dst) == (expected[0] if expected else [])


@given(graphs())
def test_next_hops_are_the_second_nodes_of_all_shortest_paths(graph):
    for src in graph:
        seconds = {
            dst: tuple(sorted({path[1] for path in nx.all_shortest_paths(graph, src, dst)}))
            for dst in nx.node_connected_component(graph, src) - {src}
        }
        assert shortest.next_hops(adjacency(graph), src) == seconds


@given(graphs())
def test_routes_are_consistent_hop_by_hop(graph):
    table = adjacency(graph)
    for src in graph:
        hops = shortest.next_hops(table, src)
        for dst in set(graph) - {src}:
            path = shortest.route(table, src, dst)
            assert bool(path) == (dst in hops)
            if path:
                assert path[1] == hops[dst][0]
                assert shortest.route(table, path[1], dst) == path[1:]


@pytest.mark.parametrize("spec", ["dcell:n=4,k=1", "beta-dcell:n=3,k=2", "ficonn:n=4,k=2"])
def test_a_crossbar_costs_nothing(spec):
    topology = build(spec)
    servers = range(topology.servers)
    graph = nx.Graph(topology.links[:, [0, 2]].tolist())
    weight = {
        (a, b): 0.5 if b >= topology.servers else 1 for a, b in topology.links[:, [0, 2]].tolist()
    }
    nx.set_edge_attributes(graph, weight, "hops")
    for src in servers:
        expected = nx.single_source_dijkstra_path_length(graph, src, weight="hops")
        assert shortest.distances(topology.adjacency, src) == {
            dst: expected[dst] for dst in servers
        }
