"""DCell, its generalisations and FiConn against the text of CCRDN, section 3, and its table 1."""

from collections import Counter
from functools import cache

import networkx as nx
import pytest

from weft.topologies import build
from weft.topologies.recursive import dcell as dcell
from weft.topologies.recursive.ccrdn import (
    BETA_DCELL,
    DCELL,
    FAMILY,
    FICONN,
    Ccrdn,
    bridge,
    common_level,
    far_subnetwork,
    gateway,
)

GAMMA_DCELL, DELTA_DCELL = (
    {name: rule for rule, name in FAMILY.items()}[f"{x}-dcell"] for x in ("gamma", "delta")
)
SMALL = [
    *[
        (rule, n, k)
        for rule in (GAMMA_DCELL, DELTA_DCELL)
        for n, k in ((4, 0), (4, 1), (6, 1), (4, 2))
    ],
    *[
        (rule, n, k)
        for rule in (DCELL, BETA_DCELL)
        for n, k in ((3, 0), (3, 1), (4, 1), (7, 1), (3, 2), (4, 2))
    ],
    *[(FICONN, n, k) for n, k in ((4, 0), (4, 1), (8, 1), (4, 2), (6, 2), (4, 3), (8, 2))],
]


def spec(rule, n, k):
    return f"{FAMILY[rule]}:n={n},k={k}"


@cache
def gamma(t):
    """(copy, server, far copy, far server) of every server, as the rule is written in
    dcell.py."""
    odd = [(a, b, (a + b) % (t + 1), b - 1) for a in range(t + 1) for b in range(1, t, 2)]
    return odd + [
        (a, b, (a - (b + 1)) % (t + 1), b + 1) for a in range(t + 1) for b in range(0, t, 2)
    ]


@cache
def delta(t):
    low = [(a, b, (a + b + 1) % (t + 1), b + t // 2) for a in range(t + 1) for b in range(t // 2)]
    high = [
        (a, b, (a - (b - t // 2) - 1) % (t + 1), b - t // 2)
        for a in range(t + 1)
        for b in range(t // 2, t)
    ]
    return low + high


@cache
def written_network(rule, n, k):
    """Servers and links (level, uid, uid) of the network, by following the paper's sentences one by
    one."""
    if k == 0:
        return n, []
    size, below = written_network(rule, n, k - 1)
    if rule == FICONN:
        used = {uid for _, *ends in below for uid in ends}
        available = size - len(used)  # server-nodes of degree one
        copies = available // 2 + 1
    else:
        copies = size + 1
    links = [(level, x * size + u, x * size + v) for x in range(copies) for level, u, v in below]
    for x in range(copies):
        for y in range(x + 1, copies):
            if rule == DCELL:
                u, v = y - 1, x
            elif rule == BETA_DCELL:
                u, v = y - x - 1, size - y + x
            elif rule == GAMMA_DCELL:
                ((u, v),) = [(b, c) for a, b, far, c in gamma(size) if (a, far) == (x, y)]
            elif rule == DELTA_DCELL:
                ((u, v),) = [(b, c) for a, b, far, c in delta(size) if (a, far) == (x, y)]
            else:
                u, v = (y - 1) * 2**k + 2 ** (k - 1) - 1, x * 2**k + 2 ** (k - 1) - 1
            links.append((k, x * size + u, y * size + v))
    return copies * size, links


@pytest.mark.parametrize(("rule", "n", "k"), SMALL)
def test_the_graph_is_the_one_that_the_paper_writes_down(rule, n, k):
    servers, links = written_network(rule, n, k)
    topology = build(spec(rule, n, k))
    topology.check()
    assert (topology.servers, topology.switches) == (servers, servers // n)
    rows = list(zip(topology.level.tolist(), topology.links[:, [0, 2]].tolist(), strict=True))
    assert sorted((level, a, b) for level, (a, b) in rows if level) == sorted(links)
    assert sorted(pair for level, pair in rows if not level) == [
        [u, servers + u // n] for u in range(servers)
    ]


@pytest.mark.parametrize(("rule", "n", "k"), SMALL)
def test_the_arithmetic_is_the_graph(rule, n, k):
    network, topology = Ccrdn(rule, n, k), build(spec(rule, n, k))
    at_level = {
        (int(a), level): int(b)
        for (a, _, b, _), level in zip(topology.links, topology.level, strict=True)
        if level
    }
    at_level |= {(b, level): a for (a, level), b in at_level.items()}
    for server in range(topology.servers):
        levels = [level for level in range(1, k + 1) if network.peer(server, level) >= 0]
        assert network.levels(server) == levels
        assert {network.peer(server, level) for level in levels} == {
            at_level.get((server, level)) for level in levels
        }
        assert [network.port(level) for level in levels] == [
            port for port, *_ in topology.ports(server)
        ][1:]


@pytest.mark.parametrize(
    ("rule", "n", "k"), [*SMALL, (DCELL, 3, 3), (BETA_DCELL, 3, 3), (FICONN, 8, 3)]
)
def test_the_other_end_of_the_other_end_is_this_end(rule, n, k):
    network = Ccrdn(rule, n, k)
    for server in range(network.t[-1]):
        for level in network.levels(server):
            other = network.peer(server, level)
            assert network.peer(other, level) == server
            assert common_level(network.t, server, other) == level


@pytest.mark.parametrize(("rule", "n", "k"), [*SMALL, (BETA_DCELL, 3, 3), (FICONN, 8, 3)])
def test_a_bridge_is_both_gateways_and_far_copy_is_their_inverse(rule, n, k):
    network = Ccrdn(rule, n, k)
    for level in range(1, k + 1):
        for i in range(network.copies[level]):
            for j in range(network.copies[level]):
                if i != j:
                    here, there = bridge(rule, network.t, level, i, j)
                    assert (here, there) == (
                        gateway(rule, network.t, level, i, j),
                        gateway(rule, network.t, level, j, i),
                    )
                    assert far_subnetwork(rule, network.t, level, i, here) == j


@pytest.mark.parametrize(("rule", "n", "k"), SMALL)
def test_one_link_joins_any_two_copies(rule, n, k):
    network, topology = Ccrdn(rule, n, k), build(spec(rule, n, k))
    for level in range(1, k + 1):
        pairs = topology.links[topology.level == level][:, [0, 2]] // network.t[level - 1]
        joined = Counter(tuple(pair) for pair in pairs.tolist())
        copies = network.copies[level]
        assert set(joined.values()) == {1}
        assert len(joined) == network.t[-1] // network.t[level] * copies * (copies - 1) // 2


@pytest.mark.parametrize(("rule", "n", "k"), SMALL)
def test_degrees(rule, n, k):
    topology = build(spec(rule, n, k))
    degree = [len(topology.ports(node)) for node in range(topology.nodes)]
    assert set(degree[topology.servers :]) == {n}
    if rule == FICONN:
        # 3.2: dual-port, and one in 2^k servers is left with a free port
        assert Counter(degree[: topology.servers])[1] == topology.servers // 2**k
        assert {
            port for server in range(topology.servers) for port, *_ in topology.ports(server)
        } <= {0, 1}
    else:
        assert set(degree[: topology.servers]) == {k + 1}


TABLE_1 = [
    (FICONN, 36, 2, 117648, 3268, 161766, [19, 172]),
    (FICONN, 48, 2, 361200, 7525, 496650, [25, 301]),
    (FICONN, 10, 3, 116160, 11616, 166980, [6, 16, 121]),
    (DCELL, 18, 2, 117306, 6517, 234612, [19, 343]),
    (DCELL, 3, 3, 24492, 8164, 61230, [4, 13, 157]),
    (DCELL, 4, 3, 176820, 44205, 442050, [5, 21, 421]),
]
TABLE_1_LARGE = [
    (FICONN, 16, 3, 3553776, 222111, 5108553, [9, 37, 667]),
    (DCELL, 43, 2, 3581556, 83292, 7163112, [44, 1893]),
    (DCELL, 6, 3, 3263442, 543907, 8158605, [7, 43, 1807]),
]


@pytest.mark.parametrize(("rule", "n", "k", "servers", "switches", "links", "copies"), TABLE_1)
def test_table_1(rule, n, k, servers, switches, links, copies):
    topology = build(spec(rule, n, k))
    topology.check()
    assert (topology.servers, topology.switches, len(topology.links)) == (servers, switches, links)


@pytest.mark.parametrize(
    ("rule", "n", "k", "servers", "switches", "links", "copies"), [*TABLE_1, *TABLE_1_LARGE]
)
def test_the_sizes_of_table_1(rule, n, k, servers, switches, links, copies):
    network = Ccrdn(rule, n, k)
    assert (network.t[-1], network.t[-1] // n, list(network.copies[1:])) == (
        servers,
        switches,
        copies,
    )
    assert [t * g for t, g in zip(network.t, copies, strict=False)] == list(network.t[1:])
    # a level-h link has two ends: half the servers of DCell, one in 2^(h+1) of FiConn
    bridges = sum(
        servers // 2 ** (h + 1) if rule == FICONN else servers // 2 for h in range(1, k + 1)
    )
    assert servers + bridges == links


def test_copies_of_a_network_are_that_network():
    whole, part = (nx.Graph(build(f"dcell:n=3,k={k}").links[:, [0, 2]].tolist()) for k in (2, 1))
    inner = whole.subgraph([*range(24, 36), *range(156 + 8, 156 + 12)])
    assert nx.is_isomorphic(inner, part)


def test_beta_dcell_is_another_network_with_shorter_paths():
    """7.1: "the mean distance in beta-DCell_{3,3} is far shorter than in DCell_{3,3}"; on a smaller
    pair here."""
    dcell, beta = (
        nx.Graph(build(f"{family}:n=3,k=2").links[:, [0, 2]].tolist())
        for family in ("dcell", "beta-dcell")
    )
    assert nx.average_shortest_path_length(beta) < nx.average_shortest_path_length(dcell)
