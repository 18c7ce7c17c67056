from __future__ import annotations

import pytest
from networks import TWO_LEVELS, channels, dead_links, distances, title

from weft.daemons.routing.shortest import UNREACHED, first_hop
from weft.daemons.routing.shortest import distances_within as search
from weft.topologies.recursive.ccrdn import DCELL, Ccrdn


@pytest.mark.parametrize("network", TWO_LEVELS, ids=title)
@pytest.mark.parametrize("one_way", [False, True])
@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.5])
@pytest.mark.slow
def test_distances_are_those_of_a_search_of_the_graph(
    network: Ccrdn, fraction: float, one_way: bool
) -> None:
    dead = dead_links(network, fraction, seed=2)
    if one_way:
        dead = set(sorted(dead)[::3])
    down = (
        bytes(channel in dead for channel in range(network.t[-1] * (network.k + 2)))
        if fraction
        else b""
    )
    size = network.t[-1]
    distance, parent, queue = [0] * size, [0] * size, [0] * size
    for src in range(0, size, 5):
        hops = distances(network, src, dead)
        assert search(
            network.rule, network.t, network.k, down, src, distance, parent, queue
        ) == len(hops)
        assert distance == [hops.get(server, UNREACHED) for server in range(size)]
        for dst in list(hops)[:20]:
            path = [dst]
            while path[-1] != src:
                path.append(parent[path[-1]])
            assert first_hop(parent, src, dst) == (path[-2] if len(path) > 1 else src)
            assert not dead & set(channels(network, path[::-1]))
        assert all(first_hop(parent, src, dst) == -1 for dst in range(size) if dst not in hops)


def test_the_scope_ends_at_its_own_level() -> None:
    network = Ccrdn(DCELL, 3, 2)
    distance, parent, queue = [0] * 12, [0] * 12, [0] * 12
    assert search(network.rule, network.t, 1, b"", 5, distance, parent, queue) == 12
    assert distance == [distances(Ccrdn(DCELL, 3, 1), 5)[server] for server in range(12)]
