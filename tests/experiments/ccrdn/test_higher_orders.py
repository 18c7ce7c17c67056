"""Shortest paths that are no general routes of order 3 at most: CCRDN, section 7.1."""

from itertools import combinations, pairwise

import networkx as nx
import pytest

from weft.topologies import build

SRC = 0


@pytest.mark.parametrize("network", ["dcell:n=3,k=3", "beta-dcell:n=3,k=3"])
def test_some_pairs_need_more_than_one_proxy(network):
    """Parts of a general route are any paths within their copy (definition 5.1)."""
    topology = build(network)
    ends, level = topology.links[:, [0, 2]], topology.level
    hops = nx.Graph(ends[level > 0].tolist())
    behind = {}
    for server, switch in ends[level == 0].tolist():
        behind.setdefault(switch, []).append(server)
    hops.add_edges_from(pair for servers in behind.values() for pair in combinations(servers, 2))
    top = ends[level == 3].tolist()
    copies = next(n for n in range(2, topology.servers) if n * (n - 1) == 2 * len(top))
    size = topology.servers // copies
    bridges = {
        (a // size, b // size): (a % size, b % size) for x, y in top for a, b in ((x, y), (y, x))
    }
    inside = dict(nx.all_pairs_shortest_path_length(hops.subgraph(range(size))))  # of every copy

    def length(along, dst):
        at, total = SRC, 0
        for step in pairwise(along):
            leave, enter = bridges[step]
            total, at = total + inside[at][leave] + 1, enter
        return total + inside[at][dst % size]

    def shortest_to_order_3(dst):
        proxies = [(0, c, dst // size) for c in range(1, copies) if c != dst // size]
        return min(length(along, dst) for along in ((0, dst // size), *proxies))

    shortest = nx.single_source_shortest_path_length(hops, SRC)
    excess = [shortest_to_order_3(dst) - shortest[dst] for dst in range(size, topology.servers, 50)]
    assert min(excess) == 0
    assert 0 < sum(map(bool, excess)) < len(excess) / 5
