from itertools import product

import networkx as nx
import pytest

from weft.topologies import build

FORMS = [(2, 1), (2, 2), (2, 4), (3, 1), (3, 2), (3, 3), (4, 2), (5, 2), (4, 3)]


def graph(topology):
    return nx.Graph(topology.links[:, [0, 2]].tolist())


def codes(n, d, tier):
    """Codes of the switches of a tier, digit 1 first; digit n-1 is the one that goes to 2d below
    the top tier."""
    digits = [range(d)] * (n - 2) + [range(d if tier == n else 2 * d)]
    return [tuple(reversed(code)) for code in product(*reversed(digits))]


def drop_component(code, component):
    return code[: component - 1] + code[component:]


def written_links(n, d):
    """Links (tier, switch, up-port, upper switch, down-port) of FT(n,d): TTC's eq. (1) tried on
    every two switches."""
    links = []
    for tier in range(1, n):
        for s, lower in enumerate(codes(n, d, tier)):
            for t, upper in enumerate(codes(n, d, tier + 1)):
                if drop_component(lower, tier) == drop_component(upper, tier):
                    links.append((tier, s, upper[tier - 1], t, lower[tier - 1]))
    return links


@pytest.mark.parametrize(("n", "d"), FORMS)
def test_links_are_those_of_equation_1(n, d):
    topology = build(f"fattree:n={n},d={d}")
    topology.check()
    lower, hosts = 2 * d ** (n - 1), 2 * d**n
    links = []
    for (a, port_a, b, port_b), tier in zip(
        topology.links.tolist(), topology.level.tolist(), strict=True
    ):
        if tier == 0:
            assert (b, port_b) == (hosts + a // d, a % d)
        else:
            s, t = a - hosts - (tier - 1) * lower, b - hosts - tier * lower
            links.append((tier, s, port_a - d, t, port_b))
    assert sorted(links) == sorted(written_links(n, d))


@pytest.mark.parametrize(("n", "d"), FORMS)
def test_sizes(n, d):
    topology = build(f"fattree:n={n},d={d}")
    assert topology.servers == 2 * d**n
    assert topology.switches == d ** (n - 1) + (n - 1) * 2 * d ** (n - 1)
    assert {len(topology.ports(node)) for node in range(topology.servers, topology.nodes)} == {
        2 * d
    }
    assert len(topology.links) == n * 2 * d**n
    if d > 1:
        assert nx.diameter(graph(topology)) == 2 * n


def test_the_k_ary_fat_tree_is_that_of_al_fares():
    """k pods of k/2 edge and k/2 aggregation switches, aggregation switch i of each joined to core
    group i."""
    for k in (4, 6):
        half, textbook = k // 2, nx.Graph()
        for pod, i, j in product(range(k), range(half), range(half)):
            textbook.add_edge(("edge", pod, i), ("aggregation", pod, j))
            textbook.add_edge(("aggregation", pod, i), ("core", i, j))
            textbook.add_edge(("host", pod, i, j), ("edge", pod, i))
        topology = build(f"fattree:k={k}")
        assert topology.servers == k**3 // 4
        assert nx.is_isomorphic(graph(topology), textbook)


def test_k_is_short_for_three_tiers():
    assert (build("fattree:k=6").links == build("fattree:n=3,d=3").links).all()


def test_core_switches_have_strides_as_in_lbsp():
    """LBSP 2.1: consecutive ports of an aggregation switch lead to cores k/2 apart, port i of a
    core to pod i."""
    topology = build("fattree:k=8")
    name = topology.naming.name
    ports = topology.ports(topology.naming.node("a5.2"))
    assert [name(peer) for _, peer, *_ in ports] == [
        "e5.0",
        "e5.1",
        "e5.2",
        "e5.3",
        "c2",
        "c6",
        "c10",
        "c14",
    ]
    core = topology.ports(topology.naming.node("c6"))
    assert [name(peer) for _, peer, *_ in core] == [f"a{pod}.2" for pod in range(8)]


def test_oversubscription_multiplies_the_hosts_of_an_edge_switch():
    plain, more = build("fattree:k=4"), build("fattree:k=4,oversubscription=4")
    assert (more.servers, more.switches) == (4 * plain.servers, plain.switches)
    name = more.naming.name
    peers = [name(peer) for _, peer, *_ in more.ports(more.naming.node("e1.1"))]
    assert peers == [*(f"h{host}" for host in range(24, 32)), "a1.0", "a1.1"]
    assert more.naming.label(31) == "s1.1.7"
    core = graph(more).subgraph(range(more.servers, more.nodes))
    assert nx.is_isomorphic(core, graph(plain).subgraph(range(plain.servers, plain.nodes)))


@pytest.mark.parametrize(
    ("whole", "pods"), [("n=3,d=4", 3), ("n=2,d=3", 2), ("n=4,d=2", 3), ("n=3,d=2", 4)]
)
def test_fewer_pods_are_the_first_of_the_whole(whole, pods):
    """Every link of the whole that is not one of a pod left out, at the same ports of the same
    names."""

    def named_links(topology):
        name = topology.naming.label
        return {(name(a), port, name(b), far) for a, port, b, far in topology.links.tolist()}

    def pod(name):
        return int(name[1:].partition(".")[0]) if name[0] != "c" else 0

    few, all_of = build(f"fattree:{whole},pods={pods}"), build(f"fattree:{whole}")
    few.check()
    assert named_links(few) == {link for link in named_links(all_of) if pod(link[0]) < pods}
    assert few.nodes == sum(pod(all_of.naming.label(node)) < pods for node in range(all_of.nodes))
    with pytest.raises(ValueError, match="at most 6 pods, got 7"):
        build("fattree:n=2,d=3,pods=7")


def test_a_fat_tree_of_two_ports_a_switch_is_a_path():
    assert nx.is_isomorphic(graph(build("fattree:k=2")), nx.path_graph(7))
